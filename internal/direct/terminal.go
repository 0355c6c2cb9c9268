package direct

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Terminal runs a command, or an interactive shell, on a terminal in the session's box until it
// ends or ctx ends. The output goes to out; the result has none.
func (w *Work) Terminal(ctx context.Context, id holdfast.SessionID, req holdfast.TerminalRequest, in io.Reader, out io.Writer, resize <-chan holdfast.TermSize) (holdfast.ExecResult, error) {
	wreq, err := terminalRequest(req)
	if err != nil {
		return holdfast.ExecResult{}, err
	}
	sizes := make(chan wire.Size)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go passSizes(ctx, resize, sizes)
	var res wire.ExecResult
	err = w.sessions.InBox(ctx, id, func(ctx context.Context, box *sandbox.Box) error {
		res, err = w.command(ctx, id, box, wreq, sandbox.ExecOptions{Stdin: in, Stdout: out, Resize: sizes})
		return err
	})
	return execResult(res), err
}

// passSizes sends sizes to to until ctx or resize ends, and then closes to.
func passSizes(ctx context.Context, resize <-chan holdfast.TermSize, to chan<- wire.Size) {
	defer close(to)
	for {
		select {
		case s, ok := <-resize:
			if !ok {
				return
			}
			select {
			case to <- wire.Size(s):
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// terminalRequest returns the request for the command that the box runs on the terminal.
func terminalRequest(req holdfast.TerminalRequest) (wire.ExecRequest, error) {
	w := wire.ExecRequest{Shell: "if command -v bash >/dev/null; then exec bash -i; fi; exec sh -i", KillOnDetach: true}
	if req.Exec != nil {
		if len(req.Exec.Stdin) > 0 {
			return w, holdfast.Errorf(holdfast.KindInvalid, "terminal", "the request has stdin for a command on a terminal, which reads what is typed").
				WithHint("leave stdin out, or the terminal: holdfast exec ID -i -- CMD…")
		}
		var err error
		if w, err = execRequest(*req.Exec); err != nil {
			return w, err
		}
		w.TimeoutMS = req.Exec.TimeoutMS
	}
	if !slices.ContainsFunc(w.Env, func(kv string) bool { return strings.HasPrefix(kv, "TERM=") }) {
		w.Env = append(w.Env, "TERM=xterm-256color")
	}
	size := wire.Size{Rows: 24, Cols: 80}
	if req.Size.Rows > 0 && req.Size.Cols > 0 {
		size = wire.Size(req.Size)
	}
	w.PTY = &size
	return w, nil
}
