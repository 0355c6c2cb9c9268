package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
)

type terminalCmd struct {
	ID string `arg:"" help:"${session}"`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*terminalCmd) Help() string {
	return "Ends with the shell's exit code. What programs in the box print reaches your terminal as it is. When the server restarts, its shells end; on a terminal the command waits for it and opens a new shell in the same box. When the box is replaced it opens one in the next. What is typed meanwhile is dropped; Ctrl-C gives up."
}

// Run connects this terminal with one in the box.
func (t *terminalCmd) Run(e *env) error {
	if e.json {
		return holdfast.Errorf(holdfast.KindInvalid, "terminal", "--json does not work with holdfast terminal: a terminal has no JSON form").
			WithHint("holdfast exec %s --json -- CMD…", word(t.ID))
	}
	c, id, err := e.onSession(t.ID)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	var size holdfast.TermSize
	var resize <-chan holdfast.TermSize
	if in, ok := terminalOf(e.stdin); ok {
		restore, err := rawMode(in)
		if err != nil {
			return err
		}
		defer restore()
		size = sizeOf(in)
		resize = sizesOf(ctx, in)
	}
	how := "the shell has ended, the files are there; a new one: holdfast terminal %s"
	keys := readKeys(ctx, e.stdin)
	shell := func() (res holdfast.ExecResult, shown bool, err error) {
		out := &shownWriter{w: e.stdout}
		res, err = c.Terminal(ctx, id, holdfast.TerminalRequest{Size: size}, keys.open(), out, resize)
		return res, out.shown, err
	}
	res, shown, err := shell()
	for size.Rows > 0 {
		if shown && holdfast.IsKind(err, holdfast.KindUnavailable) && !client.MayHaveArrived(err) {
			e.raw("the shell has ended with its box (%v); opening a new one in the next box", err)
			size = sizeOf(e.stdin.(*os.File))
			res, shown, err = shell()
			continue
		}
		if !client.MayHaveArrived(err) {
			break
		}
		e.raw("the shell has ended with the connection (%v); waiting for the server to open a new one, Ctrl-C gives up", err)
		if werr := keys.until(ctx, func() error { _, err := c.Session(ctx, id); return err }); werr != nil {
			err = werr
			break
		}
		e.raw("a new shell")
		size = sizeOf(e.stdin.(*os.File))
		res, shown, err = shell()
	}
	if err != nil {
		return goOn(err, how, id)
	}
	return exitOf(res)
}

// rawMode lets each key through as it is typed, until restore is called.
func rawMode(in *os.File) (restore func(), err error) {
	old, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindInternal, "terminal", "this terminal cannot be set to raw mode: %w", err)
	}
	return func() { _ = term.Restore(int(in.Fd()), old) }, nil // if this fails, nothing else can be done
}

// shownWriter records whether anything was written, which shows that the shell had started.
type shownWriter struct {
	w     io.Writer
	shown bool
}

func (s *shownWriter) Write(p []byte) (int, error) {
	s.shown = true
	return s.w.Write(p)
}

// raw prints a note like env.note, on a terminal that is in raw mode, where each line needs a carriage return.
func (e *env) raw(format string, args ...any) {
	fmt.Fprintf(e.stderr, "\r\n%s%s%s\r\n", e.style(dim), line(fmt.Sprintf(format, args...)), e.style(reset))
}

// keyboard passes the user's input to one remote terminal after the other.
type keyboard struct {
	ctx   context.Context
	typed chan []byte // closed when the user's input ends

	mu   sync.Mutex
	rest []byte
	over chan struct{} // closed to end the reader that open returned last
}

// readKeys starts a goroutine that reads the user's input from in. If ctx ends first, the goroutine stays
// blocked in its last read.
func readKeys(ctx context.Context, in io.Reader) *keyboard {
	k := &keyboard{ctx: ctx, typed: make(chan []byte)}
	go func() {
		defer close(k.typed)
		buf := make([]byte, 32<<10)
		for {
			n, err := in.Read(buf)
			if n > 0 {
				select {
				case k.typed <- bytes.Clone(buf[:n]):
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return k
}

// open returns a reader for the next terminal, and ends the reader that it returned before.
func (k *keyboard) open() io.Reader {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.over != nil {
		close(k.over)
	}
	k.over, k.rest = make(chan struct{}), nil
	return &keys{k, k.over}
}

type keys struct {
	k    *keyboard
	over <-chan struct{}
}

func (r *keys) Read(p []byte) (int, error) {
	r.k.mu.Lock()
	defer r.k.mu.Unlock()
	if len(r.k.rest) == 0 {
		r.k.mu.Unlock()
		var more []byte
		ok := false
		select {
		case <-r.over:
		case <-r.k.ctx.Done():
		case more, ok = <-r.k.typed:
		}
		r.k.mu.Lock()
		if !ok {
			return 0, io.EOF
		}
		select {
		case <-r.over: // the shell that this was typed for has ended
			return 0, io.EOF
		default:
		}
		r.k.rest = more
	}
	n := copy(p, r.k.rest)
	r.k.rest = r.k.rest[n:]
	return n, nil
}

// until calls try repeatedly, until it succeeds or fails with another error than unavailable, the user
// types Ctrl-C, the input ends or ctx ends. Other input is dropped.
func (k *keyboard) until(ctx context.Context, try func() error) error {
	k.mu.Lock()
	close(k.over)
	k.over = nil
	k.mu.Unlock()
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		err := try()
		if !holdfast.IsKind(err, holdfast.KindUnavailable) {
			return err
		}
		for next := false; !next; {
			select {
			case <-ctx.Done():
				return err
			case typed, ok := <-k.typed:
				if !ok || bytes.ContainsRune(typed, 3) {
					return err
				}
			case <-tick.C:
				next = true
			}
		}
	}
}

// sizesOf returns a channel with the size of a terminal after each change, until ctx ends.
func sizesOf(ctx context.Context, in *os.File) <-chan holdfast.TermSize {
	resize, changed := make(chan holdfast.TermSize, 1), make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	go func() {
		defer signal.Stop(changed)
		sendSizes(ctx, in, changed, resize)
	}()
	return resize
}

// sendSizes sends the size of a terminal after each change until ctx ends; changes that come
// meanwhile are combined.
func sendSizes(ctx context.Context, in *os.File, changed <-chan os.Signal, resize chan<- holdfast.TermSize) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
		if size := sizeOf(in); size.Rows > 0 {
			select {
			case resize <- size:
			case <-ctx.Done():
				return
			}
		}
	}
}

func sizeOf(f *os.File) holdfast.TermSize {
	cols, rows, err := term.GetSize(int(f.Fd()))
	if err != nil || rows < 1 || cols < 1 || rows > 1000 || cols > 1000 {
		return holdfast.TermSize{}
	}
	return holdfast.TermSize{Rows: uint16(rows), Cols: uint16(cols)}
}
