package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox/boxd"
)

// openPTY makes a pseudo-terminal: what is written to ours is typed at theirs.
func openPTY(t *testing.T) (ours, theirs *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	ours = os.NewFile(uintptr(fd), "ptmx")
	if theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close(); ours.Close() })
	return ours, theirs
}

func typeKeys(t *testing.T, pty *os.File, keys string) {
	t.Helper()
	if _, err := pty.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

func resizeTo(t *testing.T, pty *os.File, rows, cols uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(pty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: cols}); err != nil {
		t.Fatal(err)
	}
}

// serveHost runs a server whose trusted sessions work on this host.
func serveHost(t *testing.T) map[string]string {
	t.Helper()
	if _, err := boxd.Local(); err != nil {
		t.Fatalf("the program of the box is not built: %v (make boxd)", err)
	}
	return serveWith(t, "host")
}

// TestTerminalPassesKeysSizesAndExitCode runs the command on a terminal, with a
// server that runs the session's shell on this host.
func TestTerminalPassesKeysSizesAndExitCode(t *testing.T) {
	vars := serveHost(t)
	code, id, errs := runCLI(t, vars, "", "session", "create", "--trust", "trusted")
	if code != 0 {
		t.Fatal(errs)
	}

	ours, theirs := openPTY(t)
	resizeTo(t, ours, 33, 77)
	var shown, said screen
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the terminal shows %q, the command says %q", shown.String(), said.String())
		}
	})
	done := make(chan int, 1)
	go func() {
		done <- run(t.Context(), []string{"terminal", strings.TrimSpace(id)}, func(k string) string { return vars[k] }, theirs, &shown, &said)
	}()
	ended := func() (exit int, ok bool) {
		select {
		case exit = <-done:
			return exit, true
		default:
			return 0, false
		}
	}
	shows := func(want, keys string) {
		t.Helper()
		testkit.Eventually(t, "the terminal shows "+want, func() bool {
			if exit, ok := ended(); ok {
				t.Fatalf("the command ended with %d before the terminal showed %s", exit, want)
			}
			if keys != "" {
				typeKeys(t, ours, keys)
			}
			return strings.Contains(shown.String(), want)
		})
	}
	typeKeys(t, ours, "stty size\r")
	shows("33 77", "")
	resizeTo(t, ours, 11, 66)
	// The test has no controlling terminal: the kernel tells nobody of a new size.
	if err := syscall.Kill(os.Getpid(), syscall.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	shows("11 66", "stty size\r")
	// The program says itself that it runs: an interrupt that reaches the shell while
	// it starts one leaves the program alone.
	typeKeys(t, ours, "sh -c 'echo pa\"\"sted; exec sleep 600'\r")
	shows("pasted", "")
	typeKeys(t, ours, "\x03echo in''terrupted\r")
	shows("interrupted", "")
	typeKeys(t, ours, "exit 3\r")
	exit := -1
	testkit.Eventually(t, "the command ends with its shell", func() (ok bool) {
		exit, ok = ended()
		return ok
	})
	if exit != 3 || said.String() != "" {
		t.Errorf("exit code %d, %s\n%s", exit, said.String(), shown.String())
	}
	// The terminal is as it was: what is typed is shown by it again.
	if mode, err := unix.IoctlGetTermios(int(theirs.Fd()), unix.TCGETS); err != nil || mode.Lflag&unix.ECHO == 0 || mode.Lflag&unix.ICANON == 0 {
		t.Errorf("the terminal is left raw: %+v %v", mode, err)
	}
}

// TestTerminalEndsWithItsInput: when stdin ends, so does the shell, whatever it was
// doing then, and the command with it.
func TestTerminalEndsWithItsInput(t *testing.T) {
	vars := serveHost(t)
	code, id, errs := runCLI(t, vars, "", "session", "create", "--trust", "trusted")
	if code != 0 {
		t.Fatal(errs)
	}
	for stdin, want := range map[string]struct {
		code int
		out  string
	}{
		"":                          {0, ""},
		"echo no $((1+1)) exit\n":   {0, "no 2 exit"},
		"echo no $((1+1)) line end": {0, "no 2 line end"},
		"sleep 1\ncat\nread x\n":    {0, ""},
		"exit 7":                    {7, ""},
	} {
		var out, errs bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		code := run(ctx, []string{"terminal", strings.TrimSpace(id)}, func(k string) string { return vars[k] }, strings.NewReader(stdin), &out, &errs)
		cancel()
		if code != want.code || !strings.Contains(out.String(), want.out) || errs.Len() > 0 {
			t.Errorf("%q: %d %q %q", stdin, code, out.String(), errs.String())
		}
	}
}
