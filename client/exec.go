package client

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/sse"
)

// Exec runs a command in the session's box and returns its output and exit status. A command
// that fails is not an error of Exec.
func (c *Client) Exec(ctx context.Context, id holdfast.SessionID, req holdfast.ExecRequest) (holdfast.ExecResult, error) {
	return ask[holdfast.ExecResult](ctx, c, call{method: http.MethodPost, path: sessionPath(id, "/exec"), body: req, within: c.execLimit(req)})
}

// defaultExec is the timeout of a command that sets none.
const defaultExec = 2 * time.Minute

// execLimit returns how long the server may take to answer an exec: the command's timeout, plus
// the time to start or replace the box.
func (c *Client) execLimit(req holdfast.ExecRequest) time.Duration {
	timeout := defaultExec
	if req.TimeoutMS > 0 && req.TimeoutMS < time.Hour.Milliseconds() {
		timeout = time.Duration(req.TimeoutMS) * time.Millisecond
	} else if req.TimeoutMS > 0 {
		timeout = time.Hour // the server allows no longer timeout
	}
	return timeout + slowFor*c.cfg.FirstByte
}

// ExecStream runs a command and copies its output to stdout and stderr as it comes. The command
// is killed if ctx ends or the connection breaks; ExecStream then fails with unavailable.
func (c *Client) ExecStream(ctx context.Context, id holdfast.SessionID, req holdfast.ExecRequest, stdout, stderr io.Writer) (holdfast.ExecResult, error) {
	r := call{
		method: http.MethodPost, path: sessionPath(id, "/exec"), body: req,
		head: map[string]string{"Accept": "text/event-stream"},
	}
	resp, err := c.open(ctx, r)
	if err != nil {
		return holdfast.ExecResult{}, err
	}
	defer resp.Body.Close()
	frames := newFrames(resp.Body)
	for {
		fr, err := frames.next()
		if err != nil {
			return holdfast.ExecResult{}, broken(ctx, r, err)
		}
		res, last, err := execFrame(fr, stdout, stderr)
		if err != nil || last {
			return res, err
		}
	}
}

func execFrame(fr sse.Event, stdout, stderr io.Writer) (res holdfast.ExecResult, last bool, err error) {
	to := stdout
	switch fr.Name {
	case "stderr":
		to = stderr
	case "stdout":
	case "exit":
		if err := json.Unmarshal(fr.Data, &res); err != nil {
			return res, true, holdfast.Errorf(holdfast.KindInternal, "client", "cannot decode the command's result from the server: %w", err)
		}
		return res, true, nil
	case "error":
		var p holdfast.Problem
		if err := json.Unmarshal(fr.Data, &p); err != nil {
			return res, true, holdfast.Errorf(holdfast.KindInternal, "client", "cannot decode the command's error from the server: %w", err)
		}
		return res, true, fromProblem(p)
	default:
		return res, false, nil
	}
	var chunk struct {
		Data []byte `json:"data"`
	}
	if err := json.Unmarshal(fr.Data, &chunk); err != nil {
		return res, true, holdfast.Errorf(holdfast.KindInternal, "client", "cannot decode the command's output from the server: %w", err)
	}
	if _, err := to.Write(chunk.Data); err != nil {
		return res, true, holdfast.Errorf(holdfast.KindInternal, "client", "the command's output cannot be written: %w", err)
	}
	return res, false, nil
}
