# Completion of holdfast for bash: source <(holdfast completion bash)
_holdfast() {
	local value help
	COMPREPLY=()
	while IFS=$'\t' read -r value help; do
		if [[ $value == :files ]]; then
			compopt -o default 2>/dev/null
		else
			COMPREPLY+=("$(printf %q "$value")")
			[[ $value != *= ]] || compopt -o nospace 2>/dev/null
		fi
	done < <("${COMP_WORDS[0]}" __complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _holdfast holdfast
