package mem_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/mem"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

func spec(t *testing.T) sandbox.Spec {
	return sandbox.Spec{Box: "w-a", Dir: filepath.Join(t.TempDir(), "a")}
}

// up starts a box and connects.
func up(t *testing.T, d *mem.Driver, s sandbox.Spec) *sandbox.Box {
	t.Helper()
	t.Cleanup(func() {
		if err := d.Remove(context.Background(), s.Box); err != nil {
			t.Error(err)
		}
	})
	if _, err := d.Ensure(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return dial(t, d, s.Box)
}

func dial(t *testing.T, d *mem.Driver, id holdfast.BoxID) *sandbox.Box {
	t.Helper()
	conn, err := d.Connect(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	b, err := sandbox.Dial(t.Context(), id, conn, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func newCall(t *testing.T) sandbox.Call {
	t.Helper()
	id, err := holdfast.NewUUID(time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return sandbox.Call{ID: holdfast.CallID(id)}
}

type result struct {
	out, err string
	code     int
}

func run(t *testing.T, b *sandbox.Box, script string) (result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out, errw bytes.Buffer
	res, err := b.Exec(ctx, newCall(t), wire.ExecRequest{Shell: script}, sandbox.ExecOptions{Stdout: &out, Stderr: &errw})
	return result{out.String(), errw.String(), res.Code}, err
}

// scripts are what the imitated shell must do as the real one does.
var scripts = map[string]string{
	"sequence":            "echo a; echo b && echo c || echo d; false || echo e; false && echo f; echo $?",
	"quotes":              `a='x  y'; echo $a "$a" '$a' \$a "it's" 'say "hi"' "" x`,
	"empty field":         `printf '%s|' "" a "" b; x=; printf '%s|' $x "$x"`,
	"splitting":           `x=" a b "; printf '%s|' $x p$x q; printf '%s|' "$x"; printf '%s|' $x$x`,
	"assignment":          `A=1 B=2; echo $A$B; A=9 env | grep -c ^A=9 > /dev/null; echo $A; export A; echo ${A}x`,
	"for":                 "for i in 1 2 3; do echo n$i; done; echo $i",
	"while":               "i=0; while [ $i -lt 3 ]; do i=$((i+1)); echo $i; done; until [ $i -eq 0 ]; do i=$((i - 1)); done; echo $i",
	"if":                  "if true; then echo t; else echo f; fi; if false; then echo t; elif true; then echo e; else echo f; fi; if false; then :; fi; echo $?",
	"subshell":            "x=1; (x=2; echo $x; exit 3); echo $? $x; { x=4; }; echo $x",
	"redirection":         "echo a > f; echo b >> f; cat < f; cat f > g; wc -l < g; echo gone > /dev/null; echo err >&2 2> h; cat h",
	"merge":               "{ echo a; echo b >&2; } > f 2>&1; cat f",
	"pipe":                "seq 5 | head -n 2; yes | head -n 3; echo x | cat | cat; seq 100 | wc -l; false | true; echo $?",
	"negation":            "! true; echo $?; ! false; echo $?",
	"substitution":        `x=$(echo a; echo b); echo "$x"; echo $(echo $(echo deep)); echo "n$(seq 2 | wc -l)"`,
	"printf":              `printf 'a\tb\n%s-%s\n' 1 2 3 4; printf '%d%%\n' 7; printf 'no newline'`,
	"test":                `[ -f no ] || echo 1; touch f; [ -f f ] && echo 2; [ a = a ] && echo 3; [ a != a ] || echo 4; [ ! -d f ] && echo 5; test -z "" && echo 6; [ 2 -gt 1 ] && echo 7; [ -s f ]; echo $?`,
	"exit":                "echo a; exit 7; echo b",
	"exit of a condition": "false; exit",
	"comment":             "echo a # not this\n# nor this\necho b#c",
	"newlines":            "echo a\n\n\necho b\nfor i in 1\ndo\necho $i\ndone",
	"continuation":        "echo a \\\n b",
	"background":          "(echo later > f) & wait; cat f; sleep 0 & wait; echo $?",
	"set -e":              "set -e; echo a; false || true; if false; then :; fi; false; echo b",
	"sh -c":               `sh -c 'echo $0 $1 $#' name one; bash -c 'exit 4'; echo $?`,
	"script file":         "printf 'echo ran $1\\nexit 5\\n' > s.sh; sh s.sh arg; echo $?; sh < s.sh",
	"read":                "printf 'one two three\\nlast' > f; { read a b; echo \"$a|$b\"; read c; echo $c; read d; echo $?; } < f",
	"cd":                  "mkdir -p d/e; cd d; echo x > e/f; cat e/f; cd ..; cat d/e/f; cd nowhere 2> /dev/null; echo $?",
	"files":               "echo 1 > a; cp a b; mv b c; rm a; ls; rm -f a; rm a 2> /dev/null; echo $?; mkdir -p x/y; rm -r x; ls",
	"head -c":             "printf abcdef | head -c 3; printf abc | wc -c",
	"seq":                 "seq 3; seq 2 4",
	"trap":                "trap '' TERM; kill -TERM $$; echo alive",
	"not found":           "no-such-program 2> /dev/null; echo $?",
	"exec":                "exec echo last; echo never",
	"glob":                "mkdir d; touch a1 a2 d/a3; echo a* /workspace/x*b; cd d; echo a*",
	"jobs":                "for i in 1 2 3; do (echo $i > f$i; exit $i) & done; wait $!; echo $?; wait; cat f1 f2 f3",
	"killed job":          "sleep 60 & kill -9 $!; wait $! 2> /dev/null; echo $?",
	"job's arguments":     `x=1; set -- a "b c"; { echo "$x $# $2"; x=2; } & wait; echo $x`,
	"job in a pipe":       "{ echo a & wait; echo b; } | cat; (echo c & wait) > f; cat f",
	"functions":           "f() { echo $1; return 3; }; f x; echo $?",
	"here document":       "x=1; cat <<E\na $x\nE\ncat <<'E' | wc -l\na\nb\nE",
	"case":                "for x in a.go b; do case $x in *.go) echo go;; *) echo other;; esac; done",
	"defaults":            "echo ${no:-none}; x=abc; echo ${#x} ${x#a} ${x%c}",
	"positional":          `sh -c 'for a in "$@"; do echo "<$a>"; done' x "a b" c`,
}

// TestShellAgreesWithBash runs every script in both.
func TestShellAgreesWithBash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("SKIPPED LOUDLY: no bash to compare with")
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) {
			b := up(t, mem.New(mem.Config{}), spec(t))
			got, err := run(t, b, script)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			cmd := exec.CommandContext(t.Context(), bash, "-c", script)
			cmd.Dir, cmd.Stdout = t.TempDir(), &out
			want := result{}
			var ee *exec.ExitError
			if err := cmd.Run(); err != nil && !errors.As(err, &ee) {
				t.Fatal(err)
			}
			want.out, want.code = out.String(), cmd.ProcessState.ExitCode()
			if got.out != want.out || got.code != want.code {
				t.Errorf("%s\nimitated %d %q\nbash     %d %q\nstderr   %q", script, got.code, got.out, want.code, want.out, got.err)
			}
		})
	}
}

func TestShellRefusesWhatItDoesNotKnow(t *testing.T) {
	b := up(t, mem.New(mem.Config{}), spec(t))
	for _, script := range []string{
		"echo 'open", `echo "open`, "echo $(open", "echo ${open", "if true; then", "for x in 1; do",
		"( echo", "fi", "echo >", "| cat", "while", "echo $((1", "&& true", "do", "cat <(echo x)",
		strings.Repeat("$(", 200), strings.Repeat("{ ", 100_000), strings.Repeat("$(", 100_000), strings.Repeat(" ", 1<<20),
	} {
		got, err := run(t, b, script)
		if err != nil {
			t.Fatal(err)
		}
		if got.code != 2 || got.out != "" || !strings.Contains(got.err, "syntax error") {
			t.Errorf("%q: %+v", script, got)
		}
	}
}

func TestProgramsComplain(t *testing.T) {
	b := up(t, mem.New(mem.Config{}), spec(t))
	for script, code := range map[string]int{
		"cat none": 1, "sleep": 1, "sleep x": 1, "sleep -1": 1, "kill 99999": 1, "kill -NOSUCH 1": 1, "trap x TERM": 2,
		"trap '' NOSUCH": 1, "exit x": 2, "head none": 1, "wc none": 1, "ls none": 2, "mv a": 2, "cp none x": 1,
		"[ a": 2, "test a -zz b": 2, "test -q x": 2, "seq x": 1, "sh none": 127,
		"printf": 2, "sh -c": 2, "mkdir no/parent": 1, "touch no/parent": 1, "cat < none": 1, "echo x > no/parent": 1,
		"echo x 2>&7": 1, "./none": 127,
	} {
		got, err := run(t, b, script)
		if err != nil {
			t.Fatal(err)
		}
		if got.code != code || got.err == "" {
			t.Errorf("%q: %+v, want code %d", script, got, code)
		}
	}
}

func TestProgramsAct(t *testing.T) {
	for script, want := range map[string]string{
		"pwd; cd; pwd; cd /tmp; pwd":                                 "/workspace\n/home/agent\n/tmp\n",
		"id -u; echo $HOME $PWD":                                     "1000\n/home/agent /workspace\n",
		"ls f 2> /dev/null; touch f; ls f; ls /":                     "f\nhome\ntmp\nworkspace\n",
		"printf 'echo hi $1' > s; ./s x":                             "hi x\n",
		"yes no | head -n 2; echo abc > /workspace/x; cat x":         "no\nno\nabc\n",
		"setsid sh -c 'echo c'":                                      "c\n",
		"sleep 60 & kill $!; wait; echo done":                        "done\n",
		"kill -s KILL 12345 2> /dev/null || echo none":               "none\n",
		"echo abc > x; mkdir d; cp x d; mv d/x d/y; cat d/y":         "abc\n",
		`sh -c 'echo $#; for a in "$@" "x$@"; do echo "<$a>"; done'`: "0\n<x>\n",
	} {
		b := up(t, mem.New(mem.Config{}), spec(t))
		got, err := run(t, b, script)
		if err != nil {
			t.Fatal(err)
		}
		if got.out != want {
			t.Errorf("%q: %+v, want %q", script, got, want)
		}
	}
}

// TestHostIsOutOfReach: a script sees no variable, file, user or program of the machine.
func TestHostIsOutOfReach(t *testing.T) {
	t.Setenv("HOST_CANARY", "secret")
	b := up(t, mem.New(mem.Config{}), spec(t))
	for script, want := range map[string]string{
		"echo $HOST_CANARY; env": "\nHOME=/home/agent\nLC_CTYPE=C.UTF-8\nPATH=/usr/local/bin:/usr/bin:/bin\nTMPDIR=/tmp\nUSER=agent\n",
		"echo ~root $UID; ls /":  "~root 1000\nhome\ntmp\nworkspace\n",
		"uname; /bin/uname; type ls; command -v ls; hash; . /etc/profile; eval 'echo x'; exec uname":                        "",
		"cat /etc/passwd < /etc/passwd; cat /etc/passwd; cat ../../../../etc/passwd; echo /etc/*; [ -e /etc ] || echo none": "/etc/*\nnone\n",
		// The interpreter takes such a name for a pipe that it made itself.
		"echo x > /tmp/sh-interp-1; ls /tmp; cat < /tmp/sh-interp-1": "sh-interp-1\nx\n",
	} {
		got, err := run(t, b, script)
		if err != nil {
			t.Fatal(err)
		}
		if got.out != want {
			t.Errorf("%s: %+v, want %q", script, got, want)
		}
	}
	if _, err := os.Lstat("/tmp/sh-interp-1"); err == nil {
		t.Error("a script made a file in /tmp of the machine")
	}
}
