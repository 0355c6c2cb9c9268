package acpserver

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
)

// boxDir is the directory of a session's files in its box.
const boxDir = "/workspace"

// session is a session that the editor has open.
type session struct {
	s      *server
	id     holdfast.SessionID
	ctx    context.Context
	cancel context.CancelFunc

	// first is for the session's first prompt. hello is a text for the user that is sent before the answer to it, "" once
	// it was sent. lent is closed when the server may ask for unsaved texts, or when the first try to lend them has
	// failed; tried closes it.
	first struct {
		hello string
		lent  chan struct{}
		tried func()
	}

	mu sync.Mutex
	// last is the number of the newest event that was sent to the editor; view makes the updates.
	last int64
	view view
	// gone is closed when the session stops following the log; until is closed once the editor has the
	// log up to event head.
	gone  chan struct{}
	err   error
	head  int64
	until chan struct{}

	// prompts are the prompts whose turns have not ended. sending is closed while no message is on its way to
	// the server. While a message is on its way, it is not known which turns the editor started.
	prompts  []*prompt
	sending  chan struct{}
	inFlight int
	ours     map[holdfast.TurnID]bool
	ended    map[holdfast.TurnID]holdfast.Event
	running  holdfast.TurnID

	// asked are the open questions; never holds the calls that are denied without asking.
	asked map[holdfast.ApprovalID]*question
	never map[string]bool
}

// cwdTag returns the tag that marks the sessions of a directory of the editor.
func cwdTag(cwd string) string {
	tag := "cwd:" + cwd
	if len(tag) > 100 {
		sum := sha256.Sum256([]byte(cwd))
		tag = "cwd#" + hex.EncodeToString(sum[:16])
	}
	return tag
}

func (s *server) newSession(ctx context.Context, req acp.NewSessionRequest) (acp.NewSessionResponse, error) {
	var res acp.NewSessionResponse
	key, err := s.cfg.NewKey()
	if err != nil {
		return res, err
	}
	if !path.IsAbs(req.Cwd) {
		return res, holdfast.Errorf(holdfast.KindInvalid, "acp", "the working directory (cwd) %s of the new session is not an absolute path", holdfast.Quote(req.Cwd))
	}
	create := s.cfg.Create
	create.Tags = append([]string{"acp", cwdTag(req.Cwd)}, create.Tags...)
	if create.Title == "" {
		create.Title = path.Base(req.Cwd)
	}
	if s.cfg.Workspace != nil {
		create.Dir, create.Umask = req.Cwd, s.cfg.Umask
	}
	made, err := s.cfg.API.CreateSession(ctx, create, key)
	if err != nil {
		return res, notThere(err, create.Dir)
	}
	one := s.open(made.ID, made.LastSeq, s.placeOf(ctx, made))
	one.first.hello = hello(made, one.view.place, req.Cwd)
	if n := len(req.McpServers); n > 0 {
		one.first.hello += " MCP servers of the editor are not used."
	}
	one.start()
	return acp.NewSessionResponse{SessionId: acp.SessionId(made.ID), Modes: modes(made), Models: s.models(made)}, nil
}

// notThere takes the error of a session that could not be made in a directory. It adds a hint how to make a session
// that does not work in that directory.
func notThere(err error, dir string) error {
	if dir == "" || holdfast.IsKind(err, holdfast.KindUnavailable) {
		return err
	}
	var e *holdfast.Error
	if !errors.As(err, &e) {
		return err
	}
	more := *e
	return more.WithHint("%s; or give new sessions files of their own: holdfast acp --own-files", cmp.Or(e.Hint, "open another directory"))
}

// hello returns the text that tells the user of a new session in which directory the session works.
func hello(made holdfast.Session, at place, cwd string) string {
	trusted := made.Trust == holdfast.Trusted
	switch {
	case at != "" && trusted:
		return "This session is trusted: its tools can do everything the server's user can do. It works in " + string(at) + "."
	case at != "":
		return "This session works in " + string(at) + ", which is " + boxDir + " in its box: it sees nothing else of this machine."
	case trusted:
		return "This session is trusted: its tools can do everything the server's user can do. It works in a directory of its own on the server's machine, not in the editor's " + cwd + "."
	}
	return "This session works in a workspace of its own, " + boxDir + " in a box, which is empty or has the agent's files. " +
		"The editor's directory " + cwd + " is not mounted there: the agent sees what a prompt embeds and what `holdfast files put " +
		string(made.ID) + "` brings."
}

// modes returns the permission modes with their descriptions.
func modes(one holdfast.Session) *acp.SessionModeState {
	state := &acp.SessionModeState{CurrentModeId: acp.SessionModeId(one.Mode)}
	for _, m := range []struct {
		mode       holdfast.Mode
		name, what string
	}{
		{holdfast.ModeDefault, "Ask", "Reading runs at once, everything else is asked for"},
		{holdfast.ModeAcceptEdits, "Accept edits", "Edits run as well, commands are asked for"},
		{holdfast.ModePlan, "Plan", "Only reading"},
		{holdfast.ModeBypassPermissions, "Bypass permissions", "Everything runs that no rule denies"},
		{holdfast.ModeDontAsk, "Don't ask", "What would be asked for is denied"},
		{holdfast.ModeAuto, "Auto", "What the sandbox holds runs at once"},
	} {
		what := m.what
		state.AvailableModes = append(state.AvailableModes, acp.SessionMode{Id: acp.SessionModeId(m.mode), Name: m.name, Description: &what})
	}
	return state
}

func (s *server) models(one holdfast.Session) *acp.SessionModelState {
	state := &acp.SessionModelState{CurrentModelId: acp.ModelId(one.Model)}
	seen := map[string]bool{}
	for _, m := range append([]string{one.Model}, s.cfg.Models...) {
		if m != "" && !seen[m] {
			seen[m] = true
			state.AvailableModels = append(state.AvailableModels, acp.ModelInfo{ModelId: acp.ModelId(m), Name: m})
		}
	}
	if len(state.AvailableModels) == 0 {
		return nil
	}
	return state
}

// open adds a session that works in the directory at; the editor has its log up to an event number. If the
// editor has opened the same session before, open closes that one first.
func (s *server) open(id holdfast.SessionID, after int64, at place) *session {
	ctx, cancel := context.WithCancel(s.ctx)
	one := &session{
		s: s, id: id, ctx: ctx, cancel: cancel, last: after, view: view{place: at, known: s.cfg.Tools}, until: make(chan struct{}), sending: make(chan struct{}),
		ours: map[holdfast.TurnID]bool{}, ended: map[holdfast.TurnID]holdfast.Event{},
		asked: map[holdfast.ApprovalID]*question{}, never: map[string]bool{},
	}
	one.first.lent = make(chan struct{})
	one.first.tried = sync.OnceFunc(func() { close(one.first.lent) })
	close(one.sending)
	s.mu.Lock()
	before := s.sessions[id]
	if s.sessions != nil {
		s.sessions[id] = one
	}
	s.mu.Unlock()
	if before != nil {
		before.stop()
	}
	if !s.lends(at) || !s.begin(one.lend) {
		one.first.tried()
	}
	return one
}

// stop ends the goroutines of a session, waits for the one that follows the log, and fails the prompts.
func (o *session) stop() {
	o.cancel()
	o.mu.Lock()
	gone := o.gone
	o.mu.Unlock()
	if gone != nil {
		<-gone
	}
	o.fail(holdfast.Errorf(holdfast.KindConflict, "acp", "the editor closed the session or loaded it again; the session's turn goes on at the server"))
}

// find returns a session that the editor has opened.
func (s *server) find(id acp.SessionId) (*session, error) {
	parsed, err := holdfast.Parse[holdfast.SessionID](string(id))
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if one := s.sessions[parsed]; one != nil {
		return one, nil
	}
	return nil, holdfast.Errorf(holdfast.KindNotFound, "acp", "session %s is not open in this connection", holdfast.Quote(string(parsed))).
		WithHint("open the session with session/load or session/resume")
}

// fetch returns a session of the server.
func (s *server) fetch(ctx context.Context, name acp.SessionId) (holdfast.Session, error) {
	id, err := holdfast.Parse[holdfast.SessionID](string(name))
	if err != nil {
		return holdfast.Session{}, err
	}
	return s.cfg.API.Session(ctx, id)
}

func (s *server) loadSession(ctx context.Context, req acp.LoadSessionRequest) (acp.LoadSessionResponse, error) {
	var res acp.LoadSessionResponse
	found, err := s.fetch(ctx, req.SessionId)
	if err != nil {
		return res, err
	}
	one := s.open(found.ID, 0, s.placeOf(ctx, found))
	one.head = found.LastSeq
	gone := one.start()
	select {
	case <-one.until:
	case <-gone:
		return res, one.why()
	case <-ctx.Done():
		return res, context.Cause(ctx)
	}
	return acp.LoadSessionResponse{Modes: modes(found), Models: s.models(found)}, nil
}

// resumeSession opens a session without sending its past.
func (s *server) resumeSession(ctx context.Context, req acp.ResumeSessionRequest) (acp.ResumeSessionResponse, error) {
	var res acp.ResumeSessionResponse
	found, err := s.fetch(ctx, req.SessionId)
	if err != nil {
		return res, err
	}
	// Read the approvals after the session's last event number is known: later approvals are in the log, which is followed
	// from there.
	var asked []holdfast.Approval
	for a, err := range s.cfg.API.AllApprovals(ctx, holdfast.ApprovalFilter{Session: string(found.ID)}) {
		if err != nil {
			return res, err
		}
		asked = append(asked, a)
	}
	one := s.open(found.ID, found.LastSeq, s.placeOf(ctx, found))
	one.start()
	one.mu.Lock()
	for _, a := range asked {
		one.ask(a)
	}
	one.mu.Unlock()
	return acp.ResumeSessionResponse{Modes: modes(found), Models: s.models(found)}, nil
}

func (s *server) listSessions(ctx context.Context, req acp.ListSessionsRequest) (acp.ListSessionsResponse, error) {
	f := holdfast.SessionFilter{}
	if req.Cursor != nil {
		f.Cursor = *req.Cursor
	}
	if req.Cwd != nil {
		f.Tag = cwdTag(*req.Cwd)
	}
	page, err := s.cfg.API.Sessions(ctx, f)
	if err != nil {
		return acp.ListSessionsResponse{}, err
	}
	res := acp.ListSessionsResponse{Sessions: []acp.SessionInfo{}}
	if page.Next != "" {
		res.NextCursor = &page.Next
	}
	for _, one := range page.Sessions {
		at, title := one.LastActiveAt.UTC().Format(time.RFC3339), one.Title
		info := acp.SessionInfo{SessionId: acp.SessionId(one.ID), Cwd: boxDir, Title: &title, UpdatedAt: &at}
		for _, tag := range one.Tags {
			if cwd, ok := strings.CutPrefix(tag, "cwd:"); ok && path.IsAbs(cwd) {
				info.Cwd = cwd
			}
		}
		if req.Cwd != nil {
			info.Cwd = *req.Cwd
		}
		res.Sessions = append(res.Sessions, info)
	}
	return res, nil
}

func (s *server) closeSession(ctx context.Context, req acp.CloseSessionRequest) (acp.CloseSessionResponse, error) {
	one, err := s.find(req.SessionId)
	if err != nil {
		return acp.CloseSessionResponse{}, err
	}
	if turn := one.giveUp(); turn != "" {
		one.interrupt(ctx, turn)
	}
	s.mu.Lock()
	if s.sessions[one.id] == one {
		delete(s.sessions, one.id)
	}
	s.mu.Unlock()
	one.stop()
	return acp.CloseSessionResponse{}, nil
}

func (s *server) setMode(ctx context.Context, req acp.SetSessionModeRequest) (acp.SetSessionModeResponse, error) {
	mode := string(req.ModeId)
	return acp.SetSessionModeResponse{}, s.change(ctx, req.SessionId, holdfast.UpdateSession{Mode: &mode})
}

func (s *server) setModel(ctx context.Context, req acp.UnstableSetSessionModelRequest) (acp.UnstableSetSessionModelResponse, error) {
	model := string(req.ModelId)
	return acp.UnstableSetSessionModelResponse{}, s.change(ctx, acp.SessionId(req.SessionId), holdfast.UpdateSession{Model: &model})
}

func (s *server) change(ctx context.Context, id acp.SessionId, req holdfast.UpdateSession) error {
	one, err := s.find(id)
	if err == nil {
		_, err = s.cfg.API.UpdateSession(ctx, one.id, req)
	}
	return err
}
