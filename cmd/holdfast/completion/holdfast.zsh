#compdef holdfast
# Completion of holdfast for zsh: holdfast completion zsh > _holdfast, in a
# directory of $fpath.
_holdfast() {
	local line
	local -i missed=1
	local -a found
	while IFS= read -r line; do
		case $line in
		:files) _files && missed=0 ;;
		*$'\t'*) found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}") ;;
		*) found+=("${line//:/\\:}") ;;
		esac
	done < <("${words[1]}" __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)
	(( $#found )) && _describe -V holdfast found && missed=0
	return missed
}
if [[ ${funcstack[1]} == _holdfast ]]; then
	_holdfast "$@"
else
	compdef _holdfast holdfast
fi
