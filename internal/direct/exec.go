package direct

import (
	"bytes"
	"context"
	"io"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Limits of direct work in a session's box.
const (
	defaultExecMS = 120_000
	maxExecMS     = 3_600_000
	maxCollected  = 10 << 20
	maxFile       = 64 << 20
)

// Exec runs a command in the session's box. With nil writers the output is
// collected in the result, each stream up to 10 MiB. The command is killed when
// ctx ends.
func (w *Work) Exec(ctx context.Context, id holdfast.SessionID, req holdfast.ExecRequest, stdout, stderr io.Writer) (holdfast.ExecResult, error) {
	wreq, err := execRequest(req)
	if err != nil {
		return holdfast.ExecResult{}, err
	}
	var out, errs capped
	if stdout == nil {
		stdout = &out
	}
	if stderr == nil {
		stderr = &errs
	}
	var res wire.ExecResult
	err = w.sessions.InBox(ctx, id, func(ctx context.Context, box *sandbox.Box) error {
		opt := sandbox.ExecOptions{Stdout: stdout, Stderr: stderr}
		if wreq.Stdin {
			opt.Stdin = bytes.NewReader(req.Stdin)
		}
		res, err = w.command(ctx, id, box, wreq, opt)
		return err
	})
	if err != nil {
		return holdfast.ExecResult{}, err
	}
	done := execResult(res)
	done.Stdout, done.Stderr = out.buf.Bytes(), errs.buf.Bytes()
	done.Truncated = out.cut || errs.cut || res.StdoutDropped+res.StderrDropped > 0
	return done, nil
}

// command runs a command in a box under a new call id. The box forgets the call at the end.
func (w *Work) command(ctx context.Context, id holdfast.SessionID, box *sandbox.Box, req wire.ExecRequest, opt sandbox.ExecOptions) (wire.ExecResult, error) {
	call, err := w.call()
	if err != nil {
		return wire.ExecResult{}, err
	}
	defer box.Release(call.ID)
	done, err := w.sessions.Command(ctx, id)
	if err != nil {
		return wire.ExecResult{}, err
	}
	defer done()
	return box.Exec(ctx, call, req, opt)
}

// execResult returns how a command ended, without its output.
func execResult(res wire.ExecResult) holdfast.ExecResult {
	return holdfast.ExecResult{Class: res.Class, ExitCode: res.Code, Signal: res.Signal, Message: res.Message, DurationMS: res.DurationMS}
}

func execRequest(req holdfast.ExecRequest) (wire.ExecRequest, error) {
	w := wire.ExecRequest{
		Argv: req.Argv, Shell: req.Command, Cwd: req.Cwd, Stdin: len(req.Stdin) > 0,
		TimeoutMS: req.TimeoutMS, KillOnDetach: true,
	}
	if (len(req.Argv) > 0) == (req.Command != "") {
		return w, holdfast.Errorf(holdfast.KindInvalid, "exec", "the request has to give exactly one of argv and command").
			WithHint("holdfast exec ID -- CMD…")
	}
	for _, s := range append([]string{req.Command, req.Cwd}, req.Argv...) {
		if strings.ContainsRune(s, 0) {
			return w, holdfast.Errorf(holdfast.KindInvalid, "exec", "the command, argument or directory %s contains a NUL byte", holdfast.Quote(s))
		}
	}
	if w.TimeoutMS == 0 {
		w.TimeoutMS = defaultExecMS
	}
	if w.TimeoutMS < 0 || w.TimeoutMS > maxExecMS {
		return w, holdfast.Errorf(holdfast.KindInvalid, "exec", "timeout_ms is %d, which is not from 0 to %d; 0 means the default", req.TimeoutMS, maxExecMS)
	}
	for k, v := range req.Env {
		if !ValidEnvName(k) || strings.HasPrefix(k, "HOLDFAST_") || strings.ContainsRune(v, 0) {
			return w, holdfast.Errorf(holdfast.KindInvalid, "exec", "the environment variable %s cannot be set: its name is invalid or reserved, or its value contains NUL", holdfast.Quote(k))
		}
		w.Env = append(w.Env, k+"="+v)
	}
	return w, nil
}

// capped collects output up to maxCollected bytes.
type capped struct {
	buf bytes.Buffer
	cut bool
}

func (c *capped) Write(p []byte) (int, error) {
	room := maxCollected - c.buf.Len()
	if len(p) > room {
		c.cut = true
		c.buf.Write(p[:room])
		return len(p), nil
	}
	return c.buf.Write(p)
}

// ValidEnvName reports whether s can be the name of an environment variable.
func ValidEnvName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != "" && len(s) <= 200
}
