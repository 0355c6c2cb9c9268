package check

import (
	"strings"

	"pgregory.net/rapid"
)

// fragments are what programs are put together from; X is where a command goes.
var fragments = []string{
	"X; X", "X && X", "X || X", "X | X", "X & X", "(X)", "{ X; }", "! X", "if X; then X; else X; fi", "while false; do X; done",
	"for f in a rm; do X; done", "case rm in r*) X;; esac", "f() { X; }; f", "echo $(X)", "echo `X`", "echo \"$(X)\"", "cat <(X)",
	"eval 'X'", "eval \"X\"", "bash -c 'X'", "bash -c \"X\"", "command X", "builtin X", "exec X", "time X", "env X", "trap 'X' EXIT",
	"bash <<< 'X'", "bash <<EOF\nX\nEOF\n", "cat <<'EOF'\nX\nEOF\n", "cat <<EOF\n$(X)\nEOF\n", "X > /dev/null", "</dev/null X", "A=1 X",
	"A=rm; X", "a=(rm ls); X", "[[ -n x ]] && X", "((1)) && X", "coproc X", "X # X", "echo 'X'", "echo \\$(X)", "echo \"\\$(X)\"", "set -- rm; X",
	"x='a[$(X)]'; ((x))", "x='a[$(X)]'; [[ x -eq 1 ]]", "x='a[$(X)]'; echo ${y[x]}", "x='a[$(X)]'; let x", "declare -i n='a[$(X)]'", "read x <<< 'rm'; X",
	"printf -v x rm; X", "x='$(X)'; echo ${x@P}", "X\\\n", "\"X\"", "alias ls=rm; X", "hash -p /usr/bin/rm ls; ls", "shopt -s expand_aliases\nalias q=rm\nq", "unset 'a[$(X)]'",
	"test -v 'a[$(X)]'", "mapfile -C rm -c 1 a <<< x", "until X; do break; done", "select x in rm; do X; break; done <<< 1", "echo ${x:-$(X)}", "echo ${x:=rm}; X", "export A=rm; X", "local A=rm; X", "[ x ] && X",
	"echo $((1 + $(X)))", "echo $[ $(X) ]", "function g { X; }; g", "echo {a,b}; X", "echo @(X)", ">(X) echo", "X 2>&1 >f", "exec 3< <(X)",
	"cd /usr/bin; ./rm", "cd /usr && bin/rm", "$0 -c X", "declare x=rm; X", "declare -n r=A; A=rm; X", "IFS=m; X", "PATH=/x; X", "enable -n echo; X", "((x=1)); X", "wait -p 'a[$(X)]'", "jobs -x X",
}

// atoms are the commands at the bottom.
var atoms = []string{
	"rm", "rm x", "ls", "ls rm", "git commit -m 'rm x'", "\\rm", "r\\m", "'rm'", "\"rm\"", "r''m", "$'\\x72m'", "$'rm'", "$\"rm\"", "/bin/rm", "/usr/bin/../bin/rm", "./rm", "{rm,x}", "r[m]", "/bin/r?", "$A", "$1", "${A}",
	"${a[0]}", "$(echo rm)", "`echo rm`", "r$@m", "r${Z}m", "r$(:)m", "rm\\\n x", "echo rm", "~/rm", "{r,}m", "r{m,n}", "$x", "$REPLY", "echo x >rm", "true", ":", "env rm", "command rm", "eval rm", "r\tm", "rm\vx", "\u00a0rm", "rm&", "rm;", "rm|ls", "ls|rm", "\\\nrm", "A=rm", "rm=1", "!rm", "-rm",
}

func program(t *rapid.T, depth int) string {
	if depth == 0 || rapid.IntRange(0, 3).Draw(t, "leaf") == 0 {
		return rapid.SampledFrom(atoms).Draw(t, "atom")
	}
	f := rapid.SampledFrom(fragments).Draw(t, "fragment")
	for strings.Contains(f, "X") {
		f = strings.Replace(f, "X", strings.ReplaceAll(program(t, depth-1), "X", "x"), 1)
	}
	return f
}
