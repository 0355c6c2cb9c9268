package engine

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Bounds of direct work in a session's box.
const (
	defaultExecMS = 120_000
	maxExecMS     = 3_600_000
	maxCollected  = 10 << 20
	maxFile       = 64 << 20
)

// boxWork is a function that works in a box.
type boxWork func(ctx context.Context, box *sandbox.Box) error

// withBox claims the session's box for work outside a turn. A paused or errored
// session is resumed first.
func (e *Engine) withBox(ctx context.Context, id holdfast.SessionID, work boxWork) error {
	if err := e.draining(); err != nil {
		return err
	}
	u := e.lock(id)
	err := func() error {
		row, err := e.liveRow(ctx, id)
		if err != nil || row.Status == holdfast.StatusActive {
			return err
		}
		if _, err := e.resume(ctx, u, row, holdfast.ResumeSession{}); err != nil {
			return err
		}
		// What fails is tried again on its own.
		_ = e.next(ctx, u)
		return nil
	}()
	u.mu.Unlock()
	defer e.disclaim(u)
	if err != nil {
		return err
	}
	return e.inBox(ctx, u, work)
}

// inBox does work in the box. If the box ended before it received the work, inBox does it
// in the next box, once.
func (e *Engine) inBox(ctx context.Context, u *unit, work boxWork) error {
	err := e.inBoxOnce(ctx, u, work)
	if errors.Is(err, sandbox.ErrUnsent) && ctx.Err() == nil {
		err = e.inBoxOnce(ctx, u, work)
	}
	return err
}

func (e *Engine) inBoxOnce(ctx context.Context, u *unit, work boxWork) error {
	hold, err := e.acquire(ctx, u, place.Claim{}, nil)
	if err != nil {
		e.missing(ctx, u, err)
		return err
	}
	if err := intact(hold, u.id, false); err != nil {
		return err
	}
	defer hold.Release()
	return work(ctx, hold.Box)
}

// missing sets a session whose files turn out to be gone to error, which is from
// where it can be resumed without them. A running turn finds it out itself.
func (e *Engine) missing(ctx context.Context, u *unit, err error) {
	if !place.AreFilesGone(err) {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	row, rerr := e.cfg.Store.Row(ctx, u.id)
	if rerr != nil || row.Status != holdfast.StatusActive || u.running != nil {
		return
	}
	c := journal.NewChange(u.id)
	c.Status = []holdfast.Status{holdfast.StatusError}
	msg := err.Error()
	c.Set = &journal.RowPatch{Error: &msg}
	c.Events = []journal.Draft{{Type: holdfast.EventSessionError, Data: holdfast.Failure{
		Kind: holdfast.KindOf(err), Message: msg, Hint: holdfast.HintOf(err),
	}}}
	if _, cerr := e.cfg.Journal.Commit(ctx, c); cerr != nil {
		e.cfg.Log.WarnContext(ctx, "missing files not recorded", "session_id", u.id, "error", cerr)
	}
}

// look is withBox for work that changes nothing: when the box turns out to be
// dead it is done again in the next one.
func (e *Engine) look(ctx context.Context, id holdfast.SessionID, work boxWork) error {
	var dead <-chan struct{}
	err := e.withBox(ctx, id, func(ctx context.Context, box *sandbox.Box) error {
		dead = box.Done()
		return work(ctx, box)
	})
	if dead == nil || !holdfast.IsKind(err, holdfast.KindUnavailable) {
		return err
	}
	// The pipe says that it is broken a moment after the call failed.
	notice := time.NewTimer(200 * time.Millisecond)
	defer notice.Stop()
	select {
	case <-dead:
		return e.withBox(ctx, id, work)
	case <-notice.C:
	case <-ctx.Done():
	}
	return err
}

// call mints a call id for work whose outcome nobody asks for again: it is
// released when the work is done.
func (e *Engine) call() (sandbox.Call, error) {
	id, err := e.uuid()
	return sandbox.Call{ID: holdfast.CallID(id)}, err
}

// Exec runs a command in the session's box. With nil writers the output is
// collected in the result, each stream up to 10 MiB. The command is killed when
// ctx ends.
func (e *Engine) Exec(ctx context.Context, id holdfast.SessionID, req holdfast.ExecRequest, stdout, stderr io.Writer) (holdfast.ExecResult, error) {
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
	err = e.withBox(ctx, id, func(ctx context.Context, box *sandbox.Box) error {
		call, err := e.call()
		if err != nil {
			return err
		}
		defer box.Release(call.ID)
		done, err := e.boots.Direct(ctx, id)
		if err != nil {
			return err
		}
		defer done()
		opt := sandbox.ExecOptions{Stdout: stdout, Stderr: stderr}
		if wreq.Stdin {
			opt.Stdin = bytes.NewReader(req.Stdin)
		}
		res, err = box.Exec(ctx, call, wreq, opt)
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

// execResult is how a command ended, without its output.
func execResult(res wire.ExecResult) holdfast.ExecResult {
	return holdfast.ExecResult{Class: res.Class, ExitCode: res.Code, Signal: res.Signal, Message: res.Message, DurationMS: res.DurationMS}
}

func execRequest(req holdfast.ExecRequest) (wire.ExecRequest, error) {
	w := wire.ExecRequest{
		Argv: req.Argv, Shell: req.Command, Cwd: req.Cwd, Stdin: len(req.Stdin) > 0,
		TimeoutMS: req.TimeoutMS, KillOnDetach: true,
	}
	if (len(req.Argv) > 0) == (req.Command != "") {
		return w, holdfast.Errorf(holdfast.KindInvalid, "exec", "give exactly one of argv and command").
			WithHint("holdfast exec ID -- CMD…")
	}
	for _, s := range append([]string{req.Command, req.Cwd}, req.Argv...) {
		if strings.ContainsRune(s, 0) {
			return w, holdfast.Errorf(holdfast.KindInvalid, "exec", "%s holds a NUL byte", holdfast.Quote(s))
		}
	}
	if w.TimeoutMS == 0 {
		w.TimeoutMS = defaultExecMS
	}
	if w.TimeoutMS < 0 || w.TimeoutMS > maxExecMS {
		return w, holdfast.Errorf(holdfast.KindInvalid, "exec", "timeout_ms %d is not within 1-%d", req.TimeoutMS, maxExecMS)
	}
	for k, v := range req.Env {
		if !validEnvName(k) || strings.HasPrefix(k, "HOLDFAST_") || strings.ContainsRune(v, 0) {
			return w, holdfast.Errorf(holdfast.KindInvalid, "exec", "%s is not a usable environment name or value", holdfast.Quote(k))
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

// ListFiles lists a directory; relative paths are relative to the workspace.
func (e *Engine) ListFiles(ctx context.Context, id holdfast.SessionID, path string) (holdfast.FileList, error) {
	var out holdfast.FileList
	err := e.look(ctx, id, func(ctx context.Context, box *sandbox.Box) error {
		info, err := box.Stat(ctx, wire.PathRequest{Path: path})
		if err != nil {
			return err
		}
		list, err := wire.ListAnswer{}, error(nil)
		if info.Type == wire.TypeDir || info.Type == wire.TypeSymlink {
			list, err = box.List(ctx, wire.ListRequest{Path: path})
		}
		if info.Type != wire.TypeDir && (info.Type != wire.TypeSymlink || err != nil) {
			// A file, or a link to one.
			out.Entries = []holdfast.FileInfo{fileInfo(info)}
			return nil
		}
		out.Entries = make([]holdfast.FileInfo, len(list.Entries))
		for i, f := range list.Entries {
			out.Entries[i] = fileInfo(f)
		}
		out.Truncated = list.Truncated
		return err
	})
	return out, err
}

func fileInfo(f wire.FileInfo) holdfast.FileInfo {
	return holdfast.FileInfo{Path: f.Path, Type: string(f.Type), Size: f.Size, Mode: f.Mode, ModTime: f.ModTime, Target: f.Target}
}

// ReadFile copies a regular file to w.
func (e *Engine) ReadFile(ctx context.Context, id holdfast.SessionID, path string, w io.Writer) error {
	out := &counted{w: w}
	var err error
	return e.look(ctx, id, func(ctx context.Context, box *sandbox.Box) error {
		if out.n == 0 {
			_, err = box.Read(ctx, wire.ReadRequest{Path: path}, out)
		}
		return err
	})
}

// counted knows whether anything was written.
type counted struct {
	w io.Writer
	n int64
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// WriteFile creates or replaces a file, with its parent directories.
func (e *Engine) WriteFile(ctx context.Context, id holdfast.SessionID, path string, data []byte, mode uint32) (holdfast.FileInfo, error) {
	var out holdfast.FileInfo
	if len(data) > maxFile {
		return out, holdfast.Errorf(holdfast.KindTooLarge, "files.put", "%d bytes are over %d", len(data), maxFile)
	}
	if mode&^0o777 != 0 {
		return out, holdfast.Errorf(holdfast.KindInvalid, "files.put", "mode %o is not permission bits", mode)
	}
	err := e.mutate(ctx, id, func(ctx context.Context, box *sandbox.Box, call sandbox.Call) error {
		if _, err := box.Write(ctx, call, wire.WriteRequest{Path: path, Mode: mode, Parents: true}, data); err != nil {
			return err
		}
		info, err := box.Stat(ctx, wire.PathRequest{Path: path})
		out = fileInfo(info)
		return err
	})
	return out, err
}

// RemoveFile removes a file, or with recursive a tree.
func (e *Engine) RemoveFile(ctx context.Context, id holdfast.SessionID, path string, recursive bool) error {
	return e.mutate(ctx, id, func(ctx context.Context, box *sandbox.Box, call sandbox.Call) error {
		return box.Remove(ctx, call, wire.RemoveRequest{Path: path, Recursive: recursive})
	})
}

func (e *Engine) mutate(ctx context.Context, id holdfast.SessionID, act func(context.Context, *sandbox.Box, sandbox.Call) error) error {
	return e.withBox(ctx, id, func(ctx context.Context, box *sandbox.Box) error {
		call, err := e.call()
		if err != nil {
			return err
		}
		defer box.Release(call.ID)
		return act(ctx, box, call)
	})
}
