package main

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestExecGivesTheCommandATerminal: exec -it runs a command as `terminal` runs a shell,
// with its keys, its size and its exit code, and its arguments as they were given.
//
// FH-40.
func TestExecGivesTheCommandATerminal(t *testing.T) {
	vars := serveHost(t)
	code, out, errs := runCLI(t, vars, "", "session", "create", "--trust", "trusted")
	if code != 0 {
		t.Fatal(errs)
	}
	id := strings.TrimSpace(out)
	for name, c := range map[string]struct {
		args, typed []string
		shows       []string
		says        string
		code        int
	}{
		"keys, size and exit code": {
			[]string{"-it", id, "--", "sh", "-c", `stty size; read x; echo "got $x"; exit 5`},
			[]string{"a  b\r"},
			[]string{"33 77", "got a  b"},
			"", 5,
		},
		"an interrupt that is typed": {
			[]string{"-i", "-t", id, "--", "sh", "-c", `trap 'echo interrupted; exit 6' INT; echo ready; while :; do sleep 1; done`},
			[]string{"\x03"},
			[]string{"interrupted"},
			"", 6,
		},
		"arguments, directory and environment": {
			[]string{"-it", "--env", "TERM=vt52", "--env", "A=b c", "--cwd", "/", id, "--", "sh", "-c", `printf '%s|' "$@"; echo "$TERM $A $PWD"`, "sh", "a b", "$HOME", "*"},
			nil,
			[]string{"a b|$HOME|*|vt52 b c /"},
			"", 0,
		},
		"a terminal without keys": {
			[]string{"-t", id, "--", "sh", "-c", `test -t 0 && test -t 1 && echo "a terminal, $TERM"`},
			nil,
			[]string{"a terminal, xterm-256color"},
			"", 0,
		},
		"a signal":        {[]string{"-it", id, "--", "sh", "-c", "kill -KILL $$"}, nil, nil, "SIGKILL", 137},
		"a timeout":       {[]string{"-it", "--timeout", "50ms", id, "--", "sleep", "600"}, nil, nil, "timeout", 124},
		"no such program": {[]string{"-it", id, "--", "no-such-program"}, nil, nil, "no-such-program", 127},
	} {
		t.Run(name, func(t *testing.T) {
			ours, theirs := openPTY(t)
			resizeTo(t, ours, 33, 77)
			var shown, said screen
			done := make(chan int, 1)
			go func() {
				done <- run(t.Context(), append([]string{"exec"}, c.args...), func(k string) string { return vars[k] }, theirs, &shown, &said)
			}()
			for _, keys := range c.typed {
				testkit.Eventually(t, "the command prints", func() bool { return shown.String() != "" })
				typeKeys(t, ours, keys)
			}
			exit := -1
			testkit.Eventually(t, "the command ends", func() bool {
				select {
				case exit = <-done:
					return true
				default:
					return false
				}
			})
			for _, want := range c.shows {
				if !strings.Contains(shown.String(), want) {
					t.Errorf("it does not show %q", want)
				}
			}
			if exit != c.code || !strings.Contains(said.String(), c.says) || c.says == "" && said.String() != "" {
				t.Errorf("exit code %d, want %d, says %q", exit, c.code, said.String())
			}
			if t.Failed() {
				t.Logf("%q", shown.String())
			}
			if mode, err := unix.IoctlGetTermios(int(theirs.Fd()), unix.TCGETS); err != nil || mode.Lflag&unix.ECHO == 0 || mode.Lflag&unix.ICANON == 0 {
				t.Errorf("the terminal is left raw: %+v %v", mode, err)
			}
		})
	}
}

// TestExecWithoutKeysEndsWithItsClient: without -i the terminal here stays as it is, so
// Ctrl-C reaches this command, and the other one ends with it.
func TestExecWithoutKeysEndsWithItsClient(t *testing.T) {
	vars := serveHost(t)
	code, out, errs := runCLI(t, vars, "", "session", "create", "--trust", "trusted")
	if code != 0 {
		t.Fatal(errs)
	}
	ours, theirs := openPTY(t)
	resizeTo(t, ours, 33, 77)
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	var shown, said screen
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, []string{"exec", "-t", strings.TrimSpace(out), "--", "sh", "-c", "echo my pid is $$.; exec sleep 600"},
			func(k string) string { return vars[k] }, theirs, &shown, &said)
	}()
	testkit.Eventually(t, "the command prints", func() bool { return strings.Contains(shown.String(), ".") })
	if mode, err := unix.IoctlGetTermios(int(theirs.Fd()), unix.TCGETS); err != nil || mode.Lflag&unix.ECHO == 0 {
		t.Errorf("the terminal is raw: %+v %v", mode, err)
	}
	typeKeys(t, ours, "x\r")
	interrupt()
	testkit.Eventually(t, "the command ends", func() bool {
		select {
		case code := <-done:
			return code != 0
		default:
			return false
		}
	})
	// What was typed is there for who reads next.
	typed := []unix.PollFd{{Fd: int32(theirs.Fd()), Events: unix.POLLIN}}
	if n, err := unix.Poll(typed, 0); n != 1 || err != nil {
		t.Errorf("the keys were read: %d %v", n, err)
	}
	_, after, _ := strings.Cut(shown.String(), "my pid is ")
	pid, _, _ := strings.Cut(after, ".")
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "process "+pid+" ends", func() bool { return errors.Is(syscall.Kill(n, 0), syscall.ESRCH) })
}

// TestExecRefusesATerminalWhereThereIsNone: as docker does.
//
// FH-40.
func TestExecRefusesATerminalWhereThereIsNone(t *testing.T) {
	vars := serveHost(t)
	for _, flags := range [][]string{{"-t"}, {"-it"}, {"-t", "--json"}} {
		code, out, errs := runCLI(t, vars, "", append(append([]string{"exec"}, flags...), "01890a5d-ac96-774b-bcce-b302099a8057", "--", "true")...)
		if text := out + errs; code != 2 || !strings.Contains(text, "terminal") || !strings.Contains(text, "leave -t out") {
			t.Errorf("%v: %d %s", flags, code, text)
		}
	}
}
