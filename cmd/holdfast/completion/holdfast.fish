# Completion of holdfast for fish: holdfast completion fish > ~/.config/fish/completions/holdfast.fish
function __holdfast_complete
	set -l words (commandline -opc)
	set -l last (commandline -ct)
	for found in ($words[1] __complete -- $words[2..-1] "$last" 2>/dev/null)
		if test "$found" = :files
			__fish_complete_path "$last"
		else
			echo $found
		end
	end
end
complete -c holdfast -f -k -a '(__holdfast_complete)'
