package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// terminal is a shell on a pseudo-terminal. The shell shows each prompt only when the method
// prompt allows it, so that the output of background jobs comes before it.
type terminal struct {
	pty   *os.File
	shell *exec.Cmd
	home  string

	mu   sync.Mutex
	said strings.Builder
}

func openTerminal(home string, env []string) (*terminal, error) {
	ours, theirs, err := openPTY()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	if err := syscall.Mkfifo(filepath.Join(home, "go"), 0o600); err != nil {
		return nil, err
	}
	t := &terminal{pty: ours, home: home}
	t.shell = exec.Command("bash", "--norc", "--noprofile", "--noediting", "-i")
	t.shell.Dir, t.shell.Env = home, append(env, `PROMPT_COMMAND=read -r _ < "$HOME/go"`)
	t.shell.Stdin, t.shell.Stdout, t.shell.Stderr = theirs, theirs, theirs
	t.shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Pdeathsig: syscall.SIGKILL}
	if err := t.shell.Start(); err != nil {
		return nil, err
	}
	go func() {
		buf := make([]byte, 32<<10)
		for {
			n, err := ours.Read(buf)
			t.mu.Lock()
			t.said.Write(buf[:n])
			t.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	return t, nil
}

// prompt lets the shell show its next prompt, and waits for it.
func (t *terminal) prompt() error {
	f, err := os.OpenFile(filepath.Join(t.home, "go"), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	if _, err := f.WriteString("\n"); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return t.until(func(s string) bool { return strings.HasSuffix(s, "$ ") })
}

// run types a command and returns what it printed, without the command itself.
func (t *terminal) run(s step) (string, error) {
	t.mu.Lock()
	t.said.Reset()
	t.mu.Unlock()
	if _, err := t.pty.WriteString(s.command + "\n"); err != nil {
		return "", err
	}
	body := func(all string) string {
		_, rest, _ := strings.Cut(all, "\n")
		return rest
	}
	if s.shows != "$" {
		if err := t.until(func(all string) bool { return strings.Contains(body(all), s.shows) && strings.HasSuffix(all, "\n") }); err != nil {
			return t.all(), err
		}
	}
	if err := t.prompt(); err != nil {
		return t.all(), err
	}
	return strings.TrimSuffix(body(t.all()), "$ "), nil
}

func (t *terminal) all() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.said.String()
}

func (t *terminal) until(ok func(string) bool) error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if ok(t.all()) {
			return nil
		}
	}
	return errors.New("the terminal does not show the expected text in time")
}

// close ends the shell and the servers that it started.
func (t *terminal) close() {
	_, _ = t.pty.WriteString("kill %1 %2; wait; exit\n")
	ended := make(chan struct{})
	go func() {
		_ = t.shell.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(patience):
		_ = t.shell.Process.Kill()
	}
	_ = t.pty.Close()
}

func openPTY() (ours, theirs *os.File, err error) {
	ours, err = os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	var n, unlock int32
	size := [4]uint16{rows, columns}
	for _, c := range []struct {
		op  uintptr
		arg unsafe.Pointer
	}{
		{syscall.TIOCSPTLCK, unsafe.Pointer(&unlock)},
		{syscall.TIOCGPTN, unsafe.Pointer(&n)},
		{syscall.TIOCSWINSZ, unsafe.Pointer(&size)},
	} {
		if _, _, no := syscall.Syscall(syscall.SYS_IOCTL, ours.Fd(), c.op, uintptr(c.arg)); no != 0 {
			return nil, nil, fmt.Errorf("cannot open a pseudo-terminal: %w", no)
		}
	}
	theirs, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	return ours, theirs, err
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, err
}
