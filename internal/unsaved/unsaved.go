// Package unsaved asks the editors of users for the texts of files that are open in the editor and have unsaved
// changes.
//
// It owns the list of the editors that are attached to sessions, and their open questions. The API attaches editors,
// the native runtime asks them. The package imports the vocabulary only and stores nothing on disk. Invariants: an
// answer is untrusted text of a bounded size, every question ends in a bounded time, and each question is about a path
// below the session's workspace.
package unsaved

import (
	"context"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
)

const (
	// MaxText is how many bytes the text of a file in an answer may have.
	MaxText = 1 << 20
	// patience is how long a question waits for its answer. If a question gets no text and half of that time or more has
	// passed, its editor gets no questions for the time rest.
	patience = 3 * time.Second
	rest     = 30 * time.Second
	// maxAsked is how many questions without an answer one editor may have.
	maxAsked = 32
	// maxEditors is how many editors may be attached to one session.
	maxEditors = 8
)

// Question asks for the text of a file. Path is below the workspace, relative to it, and has no symlinks.
type Question struct {
	ID   int64
	Path string
}

// Answer is an editor's answer. If Unsaved is false, the editor shows what is on the disk. If Why is not empty, the
// editor's text is not known.
type Answer struct {
	Unsaved bool
	Text    string
	Why     string
}

// Editors are the editors that are attached to sessions. The zero value has none. Safe for concurrent use.
type Editors struct {
	// Now is the clock; nil means time.Now.
	Now func() time.Time

	mu sync.Mutex
	of map[holdfast.SessionID][]*Editor
}

// Editor is an editor that has a session open. It must not be used after Leave.
type Editor struct {
	all     *Editors
	session holdfast.SessionID
	asks    chan Question

	// all.mu guards the fields below. last is the number of the newest question. open has the channels for the answers to
	// the open questions, by the questions' numbers. Until the time rested the editor gets no questions. Leave closes
	// left.
	last   int64
	open   map[int64]chan Answer
	rested time.Time
	left   chan struct{}
}

// Attach adds an editor to a session; too_large if the session has 8 editors already. Questions go to the editor that
// was attached last.
func (e *Editors) Attach(session holdfast.SessionID) (*Editor, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.of[session]) >= maxEditors {
		return nil, holdfast.Errorf(holdfast.KindTooLarge, "editor", "%d editors have session %s open already, the most that are allowed", maxEditors, session).
			WithHint("close the session in one of the editors")
	}
	one := &Editor{all: e, session: session, asks: make(chan Question, maxAsked), open: map[int64]chan Answer{}, left: make(chan struct{})}
	if e.of == nil {
		e.of = map[holdfast.SessionID][]*Editor{}
	}
	e.of[session] = append(e.of[session], one)
	return one, nil
}

// Questions returns the channel on which the editor gets its questions.
func (d *Editor) Questions() <-chan Question { return d.asks }

// Answer passes an editor's answer to the tool that asked the question. It returns invalid if the question is not open,
// or if the text is too long, is not UTF-8 or has a NUL byte. An open question ends with such an answer too, without a
// text.
func (d *Editor) Answer(id int64, a Answer) error {
	var err error
	switch {
	case len(a.Text) > MaxText:
		err = holdfast.Errorf(holdfast.KindInvalid, "editor", "the editor's text of a file has %d bytes, more than the limit of %d", len(a.Text), MaxText)
	case !utf8.ValidString(a.Text) || strings.IndexByte(a.Text, 0) >= 0:
		err = holdfast.Errorf(holdfast.KindInvalid, "editor", "the editor's text is not valid UTF-8 or has a NUL byte")
	}
	if err != nil {
		a = Answer{Why: err.Error()}
	}
	d.all.mu.Lock()
	defer d.all.mu.Unlock()
	asked := d.open[id]
	if asked == nil {
		return holdfast.Errorf(holdfast.KindInvalid, "editor", "the editor answered question %d, which is not open", id)
	}
	delete(d.open, id)
	asked <- a
	return err
}

// Leave detaches the editor. Its open questions end.
func (d *Editor) Leave() {
	d.all.mu.Lock()
	defer d.all.mu.Unlock()
	list := d.all.of[d.session]
	i := slices.Index(list, d)
	if i < 0 {
		return
	}
	if d.all.of[d.session] = slices.Delete(list, i, i+1); len(list) == 1 {
		delete(d.all.of, d.session)
	}
	close(d.left)
}

// For returns a function, of type tool.Unsaved, with which the tools of a session ask for the unsaved text of a file.
func (e *Editors) For(session holdfast.SessionID) func(ctx context.Context, path string) (text string, unsaved bool, err error) {
	return func(ctx context.Context, path string) (string, bool, error) { return e.text(ctx, session, path) }
}

// text asks the newest editor of a session for the text of a file. It returns unavailable if the editor can get no
// question now, gives no answer in time, or does not know the text. It returns false if the session has no editor, or
// if the editor leaves meanwhile.
func (e *Editors) text(ctx context.Context, session holdfast.SessionID, path string) (string, bool, error) {
	if !fs.ValidPath(path) || path == "." {
		return "", false, nil
	}
	d, id, answer, err := e.ask(session, path)
	if d == nil || err != nil {
		return "", false, err
	}
	began := e.now()
	t := time.NewTimer(patience)
	defer t.Stop()
	select {
	case a := <-answer:
		if a.Why == "" {
			return a.Text, a.Unsaved, nil
		}
		err = silent(a.Why)
	case <-d.left:
		return "", false, nil
	case <-t.C:
		err = silent("the editor gave no answer within " + patience.String())
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(d.open, id)
	if ctx.Err() == nil && e.now().Sub(began) >= patience/2 {
		d.rested = e.now().Add(rest)
	}
	return "", false, err
}

// ask puts a question to the newest editor of a session. d and answer are nil if the session has no editor, and after
// an error.
func (e *Editors) ask(session holdfast.SessionID, path string) (d *Editor, id int64, answer chan Answer, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := e.of[session]
	if len(list) == 0 {
		return nil, 0, nil, nil
	}
	d = list[len(list)-1]
	if e.now().Before(d.rested) {
		return nil, 0, nil, silent("the editor gave no answer to an earlier question")
	}
	if len(d.open) >= maxAsked {
		return nil, 0, nil, silent("the editor has too many questions without an answer")
	}
	select {
	case d.asks <- Question{ID: d.last + 1, Path: path}:
	default:
		return nil, 0, nil, silent("the editor does not take its questions")
	}
	d.last++
	answer = make(chan Answer, 1)
	d.open[d.last] = answer
	return d, d.last, answer, nil
}

func (e *Editors) now() time.Time {
	if e.Now == nil {
		return time.Now()
	}
	return e.Now()
}

func silent(why string) error {
	return holdfast.Errorf(holdfast.KindUnavailable, "file.editor", "the unsaved text of a file in the user's editor is not known: %s", why)
}
