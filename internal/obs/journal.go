package obs

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"sync"
)

// journal is a log handler that writes lines as journald reads them from a service's stderr:
// with the priority as a prefix, and without the time, which journald adds.
type journal struct {
	*journalOut
	text slog.Handler // formats a record as one line and writes it to journalOut.buf
}

// journalOut is the output that all handlers derived from one logger share.
type journalOut struct {
	mu  sync.Mutex
	w   io.Writer
	buf bytes.Buffer
}

func newJournal(w io.Writer, opt *slog.HandlerOptions) *journal {
	out := &journalOut{w: w}
	lean := *opt
	lean.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr {
		if len(groups) == 0 && (a.Key == slog.TimeKey || a.Key == slog.LevelKey) {
			return slog.Attr{}
		}
		return opt.ReplaceAttr(groups, a)
	}
	return &journal{out, slog.NewTextHandler(&out.buf, &lean)}
}

// Enabled implements slog.Handler.
func (j *journal) Enabled(ctx context.Context, l slog.Level) bool { return j.text.Enabled(ctx, l) }

// Handle implements slog.Handler.
func (j *journal) Handle(ctx context.Context, r slog.Record) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.buf.Reset()
	j.buf.WriteString(priority(r.Level))
	if err := j.text.Handle(ctx, r); err != nil {
		return err
	}
	_, err := j.w.Write(j.buf.Bytes())
	return err
}

// WithAttrs implements slog.Handler.
func (j *journal) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &journal{j.journalOut, j.text.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (j *journal) WithGroup(name string) slog.Handler {
	return &journal{j.journalOut, j.text.WithGroup(name)}
}

// priority returns the prefix of sd-daemon(3) for a log level.
func priority(l slog.Level) string {
	switch {
	case l >= slog.LevelError:
		return "<3>"
	case l >= slog.LevelWarn:
		return "<4>"
	case l >= slog.LevelInfo:
		return "<6>"
	}
	return "<7>"
}
