package acpserver

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/internal/jsonrpc"
	"github.com/holdfast-run/holdfast/internal/rooted"
)

const (
	// maxUnsaved is the most bytes of a file whose text is asked for. A larger one is read from the disk.
	maxUnsaved = 1 << 20
	// askTime is how long finding out the unsaved text of one file may take: a little less than the server waits for
	// it.
	askTime = 2500 * time.Millisecond
	// reloadTime is how long an editor may take to show a file that was changed on the disk, pollTime the time between
	// two checks whether it does.
	reloadTime = 1500 * time.Millisecond
	pollTime   = 100 * time.Millisecond
	// tick is the largest step of the time stamps of file systems that store fractions of seconds, coarse that of file
	// systems that store whole seconds.
	tick   = 20 * time.Millisecond
	coarse = 2 * time.Second
	// looks is how often atRest reads the directories until all of them have been unchanged for long enough.
	looks = 5
)

// lend lends the unsaved texts of the editor to the server until the session is closed. It connects again after an error
// of kind unavailable; any other error ends it.
func (o *session) lend() {
	defer o.first.tried()
	for wait := pollTime; ; wait = min(2*wait, 30*time.Second) {
		err := o.s.cfg.Editor(o.ctx, o.id, func() { wait = pollTime; o.first.tried() }, o.unsaved)
		switch {
		case o.ctx.Err() != nil, holdfast.IsKind(err, holdfast.KindGone), holdfast.IsKind(err, holdfast.KindNotFound):
			return
		case !holdfast.IsKind(err, holdfast.KindUnavailable):
			o.s.cfg.Log.Warn("the agent does not see unsaved text", "session_id", o.id, "error", err)
			return
		}
		o.first.tried()
		if clock.Pause(o.ctx, wait) != nil {
			return
		}
	}
}

// untilLent waits, at most askTime, until the server can ask the editor for unsaved texts, so that the first tool of a
// prompt sees them.
func (o *session) untilLent(ctx context.Context) {
	t := time.NewTimer(askTime)
	defer t.Stop()
	select {
	case <-o.first.lent:
	case <-t.C:
	case <-ctx.Done():
	}
}

// unsaved returns the text of a file of the session's directory as the editor shows it; differs is false if the disk has
// the same text or the editor does not have the file open.
//
// The agent can replace a directory on the way by a symlink while the editor opens the file, and so make it show a file
// of the machine that the session does not have. So the text is used only if nothing was made, moved or removed in
// these directories meanwhile.
func (o *session) unsaved(ctx context.Context, name string) (text string, differs bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	top := string(o.view.place)
	before, err := atRest(ctx, top, name)
	if err != nil {
		return "", false, err
	}
	for {
		disk, state, err := rooted.Tree(top).ReadFile(ctx, name, maxUnsaved)
		if holdfast.IsKind(err, holdfast.KindTooLarge) || err == nil && !utf8.Valid(disk) {
			return "", false, nil
		}
		if err != nil {
			return "", false, err
		}
		text, known, err := o.shown(ctx, path.Join(top, name))
		if err != nil || !known || sameText(text, string(disk)) {
			return "", false, err
		}
		// If the file changed a moment ago, the editor may not show the change yet: wait, and compare again.
		if time.Since(time.Unix(0, state.Ctime)) < reloadTime {
			if err := clock.Pause(ctx, pollTime); err != nil {
				return "", false, late()
			}
			continue
		}
		after, err := way(top, name)
		if err != nil {
			return "", false, err
		}
		if !slices.Equal(before, after) {
			return "", false, holdfast.Errorf(holdfast.KindConflict, "acp", "the directories that lead to the file %s changed while the editor was asked for its text", holdfast.Quote(name))
		}
		return text, true, nil
	}
}

// shown returns the text that the editor shows for a file. known is false if the editor refuses: then it does not have
// the file open.
func (o *session) shown(ctx context.Context, file string) (text string, known bool, err error) {
	var res struct {
		Content *string `json:"content"`
	}
	err = o.s.peer.Call(ctx, acp.ClientMethodFsReadTextFile, acp.ReadTextFileRequest{SessionId: acp.SessionId(o.id), Path: file}, &res)
	var refused *jsonrpc.Error
	switch {
	case ctx.Err() != nil:
		return "", false, late()
	case errors.As(err, &refused):
		return "", false, nil
	case err != nil:
		return "", false, err
	case res.Content == nil:
		return "", false, holdfast.Errorf(holdfast.KindInvalid, "acp", "the editor's answer to the request %s has no content", acp.ClientMethodFsReadTextFile)
	}
	if len(*res.Content) > maxUnsaved {
		return "", false, holdfast.Errorf(holdfast.KindTooLarge, "acp", "the editor's text of the file %s has %d bytes, more than the limit of %d bytes", holdfast.Quote(file), len(*res.Content), maxUnsaved)
	}
	return *res.Content, true, nil
}

func late() error {
	return holdfast.Errorf(holdfast.KindUnavailable, "acp", "the editor gave no answer to the request for a file's text within %s", askTime)
}

// sameText reports whether two texts are the same but for what editors change without showing it: line ends and a byte
// order mark.
func sameText(a, b string) bool {
	plain := func(s string) string {
		return strings.ReplaceAll(strings.TrimPrefix(s, "\uFEFF"), "\r\n", "\n")
	}
	return a == b || plain(a) == plain(b)
}

// step is the state of one directory on the path of a file. Making, moving or removing an entry changes the time in
// changed (ctime), which nobody can set.
type step struct {
	dev, ino uint64
	changed  int64
}

// way returns the state of each directory on the path of a file below top. It follows no symlink.
func way(top, name string) ([]step, error) {
	dir, err := rooted.OpenTree(top)
	if err != nil {
		return nil, err
	}
	defer func() { dir.Close() }()
	var out []step
	for parts := strings.Split(name, "/"); ; parts = parts[1:] {
		e, err := dir.Stat()
		if err != nil {
			return nil, err
		}
		out = append(out, step{e.Dev, e.Ino, e.Ctime.UnixNano()})
		if len(parts) == 1 {
			return out, nil
		}
		next, err := dir.Open(parts[0])
		if err != nil {
			return nil, err
		}
		dir.Close()
		dir = next
	}
}

// atRest returns the directories on the path of a file, with their times of change, once each of these times is older
// than the smallest step of its file system's time stamps: then a later change of a directory results in another time.
func atRest(ctx context.Context, top, name string) ([]step, error) {
	for range looks {
		steps, err := way(top, name)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(steps, func(s step) bool {
			least := 2 * tick
			if s.changed%int64(time.Second) == 0 {
				least = coarse
			}
			return time.Since(time.Unix(0, s.changed)) < least
		}) {
			return steps, nil
		}
		if err := clock.Pause(ctx, 2*tick); err != nil {
			return nil, late()
		}
	}
	return nil, holdfast.Errorf(holdfast.KindConflict, "acp", "the directories that lead to the file %s change all the time", holdfast.Quote(name))
}
