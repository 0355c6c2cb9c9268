package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/internal/testkit"
)

// shows reports whether a terminal echoes.
func shows(t *testing.T, tty *os.File) bool {
	t.Helper()
	state, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return state.Lflag&unix.ECHO != 0
}

// TestSecretsAreNotShownAsTheyAreTyped: a terminal does not echo a value, and echoes
// again however the command ended.
func TestSecretsAreNotShownAsTheyAreTyped(t *testing.T) {
	const canary = "sk-canary-typed-by-hand"
	env := os.Environ()
	for k, v := range serveWith(t, "mem") {
		env = append(env, k+"="+v)
	}
	for name, c := range map[string]struct {
		typed string
		sig   syscall.Signal
	}{
		"typed":       {typed: canary + "\n"},
		"interrupted": {typed: canary + "\x03"}, // Ctrl-C
		"quit":        {typed: canary + "\x1c"}, // Ctrl and a backslash
		"stopped":     {typed: canary + "\x1a"}, // Ctrl-Z
		"ended":       {sig: syscall.SIGTERM},
		"hung up":     {sig: syscall.SIGHUP},
	} {
		t.Run(name, func(t *testing.T) {
			kept := strings.HasSuffix(c.typed, "\n")
			person, program := openPTY(t)
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			cmd := exec.CommandContext(ctx, "holdfast", "secret", "set", "anthropic")
			cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, program, program, program
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			var screen bytes.Buffer
			seen := func() string {
				mu.Lock()
				defer mu.Unlock()
				return screen.String()
			}
			go func() {
				buf := make([]byte, 4096)
				for {
					n, err := person.Read(buf)
					mu.Lock()
					screen.Write(buf[:n])
					mu.Unlock()
					if err != nil {
						return
					}
				}
			}()
			testkit.Eventually(t, "the terminal hides what is typed", func() bool { return !shows(t, program) })
			typeKeys(t, person, c.typed)
			if c.sig != 0 {
				if err := cmd.Process.Signal(c.sig); err != nil {
					t.Fatal(err)
				}
			}
			err := cmd.Wait()
			if (err == nil) != kept {
				t.Errorf("it ended with %v: %s", err, seen())
			}
			if status := cmd.ProcessState.Sys().(syscall.WaitStatus); !status.Exited() {
				t.Errorf("it was ended by %s", status.Signal())
			}
			if !shows(t, program) {
				t.Error("the terminal shows nothing any more")
			}
			want := "nothing was stored"
			if kept {
				want = "anthropic is kept"
			}
			testkit.Eventually(t, want, func() bool { return strings.Contains(seen(), want) })
			if strings.Contains(seen(), "canary") {
				t.Errorf("the terminal showed %q", seen())
			}
		})
	}
}

// TestANewPassphraseIsTypedTwice: a backup with keys asks on a terminal for the passphrase twice, and saves nothing if the
// two differ: after a typing error nobody could open the keys. A restore asks once.
func TestANewPassphraseIsTypedTwice(t *testing.T) {
	vars := serveWith(t, "mem")
	file := filepath.Join(t.TempDir(), "backup")
	person, program := openPTY(t)
	asked := func(args []string, answers ...string) (code int, said string) {
		t.Helper()
		var out, errs screen
		done := make(chan int, 1)
		go func() { done <- run(t.Context(), args, func(k string) string { return vars[k] }, program, &out, &errs) }()
		for i, answer := range answers {
			testkit.Eventually(t, "the command asks", func() bool {
				return strings.Count(errs.String(), "then Enter") == i+1 && !shows(t, program)
			})
			typeKeys(t, person, answer+"\n")
		}
		testkit.Eventually(t, "the command ends", func() (ok bool) {
			select {
			case code = <-done:
				return true
			default:
				return false
			}
		})
		return code, errs.String()
	}
	code, said := asked([]string{"backup", "--with-keys", file}, "korrekt horse", "correct horse")
	if _, err := os.Lstat(file); code != 2 || !strings.Contains(said, "the two passphrases differ") || err == nil {
		t.Errorf("two that differ: %d, %s, %v", code, said, err)
	}
	if code, said := asked([]string{"backup", "--with-keys", file}, "correct horse", "correct horse"); code != 0 {
		t.Errorf("twice the same: %d, %s", code, said)
	}
	if code, said := asked([]string{"restore", file, "--data", filepath.Join(t.TempDir(), "restored")}, "correct horse"); code != 0 {
		t.Errorf("the restore: %d, %s", code, said)
	}
}
