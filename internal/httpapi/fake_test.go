package httpapi

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net/http/httptest"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/guard"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/obs"
)

const testToken = "test-token"

// fakeStore is a journal's store in memory.
type fakeStore struct {
	mu     sync.Mutex
	rows   map[holdfast.SessionID]*journal.Row
	events map[holdfast.SessionID][]holdfast.Event
}

func unknownSession(id holdfast.SessionID) error {
	return holdfast.Errorf(holdfast.KindNotFound, "session", "no session %s", holdfast.Quote(string(id)))
}

func (s *fakeStore) Commit(_ context.Context, c journal.Encoded) (journal.Committed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Create != nil {
		row := *c.Create
		s.rows[c.Session] = &row
	}
	row := s.rows[c.Session]
	if row == nil {
		return journal.Committed{}, unknownSession(c.Session)
	}
	if len(c.Status) > 0 {
		row.Status = c.Status[len(c.Status)-1]
	}
	row.Revision++
	var out journal.Committed
	for i, d := range c.Events {
		row.LastSeq++
		e := holdfast.Event{Session: c.Session, Seq: row.LastSeq, Type: d.Type, Turn: d.Turn, Data: c.Data[i], Time: time.UnixMilli(row.LastSeq).UTC()}
		s.events[c.Session] = append(s.events[c.Session], e)
		out.Events = append(out.Events, e)
	}
	out.Row = *row
	return out, nil
}

func (s *fakeStore) Events(_ context.Context, id holdfast.SessionID, after int64, limit int) ([]holdfast.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.events[id]
	if after > int64(len(all)) {
		return nil, nil
	}
	all = all[after:]
	return append([]holdfast.Event(nil), all[:min(limit, len(all))]...), nil
}

func (s *fakeStore) Row(_ context.Context, id holdfast.SessionID) (journal.Row, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rows[id] == nil {
		return journal.Row{}, unknownSession(id)
	}
	return *s.rows[id], nil
}

func (s *fakeStore) Head(_ context.Context, id holdfast.SessionID) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rows[id] == nil {
		return 0, unknownSession(id)
	}
	return s.rows[id].LastSeq, nil
}

// fakeEngine behaves like the engine where the API can see it, over a real
// journal. A message "hold" leaves its turn running until finish.
type fakeEngine struct {
	store   *fakeStore
	journal *journal.Journal

	mu       sync.Mutex
	turns    map[holdfast.SessionID][]holdfast.Turn
	keys     map[string]holdfast.Turn
	created  map[string]holdfast.Session
	files    map[string][]byte
	held     map[holdfast.CheckpointID]bool
	agents   map[holdfast.AgentName]holdfast.Agent
	request  string // the request that made the newest session
	fail     error  // what every call on a session answers, when set
	health   holdfast.Health
	boxes    []holdfast.Container
	term     func(ctx context.Context, req holdfast.TerminalRequest, in io.Reader, out io.Writer, resize <-chan holdfast.TermSize) (holdfast.ExecResult, error)
	exec     func(ctx context.Context, req holdfast.ExecRequest, stdout, stderr io.Writer) (holdfast.ExecResult, error)
	last     any    // the newest request
	key      string // of the newest session
	approval *holdfast.Approval
	max      holdfast.Trust // of the newest request that tells it
}

func newFake() *fakeEngine {
	st := &fakeStore{rows: map[holdfast.SessionID]*journal.Row{}, events: map[holdfast.SessionID][]holdfast.Event{}}
	return &fakeEngine{
		store: st, journal: journal.New(journal.Config{Store: st}),
		turns: map[holdfast.SessionID][]holdfast.Turn{}, keys: map[string]holdfast.Turn{},
		created: map[string]holdfast.Session{}, files: map[string][]byte{}, held: map[holdfast.CheckpointID]bool{}, agents: map[holdfast.AgentName]holdfast.Agent{},
		health: holdfast.Health{Status: "ok", Version: "test", Driver: "mem", PID: 1},
	}
}

func newID() string {
	id, err := holdfast.NewUUID(time.Now(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return id
}

func (f *fakeEngine) see(req any) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r := req.(type) {
	case holdfast.CreateSession:
		f.max, r.MaxTrust = r.MaxTrust, ""
		req = r
	case holdfast.UpdateSession:
		f.max, r.MaxTrust = r.MaxTrust, ""
		req = r
	case holdfast.SendMessage:
		f.max, r.MaxTrust = r.MaxTrust, ""
		req = r
	}
	f.last = req
	return f.fail
}

func (f *fakeEngine) Create(ctx context.Context, req holdfast.CreateSession, key string) (holdfast.Session, bool, error) {
	f.request = obs.RequestIDOf(ctx)
	if err := f.see(req); err != nil {
		return holdfast.Session{}, false, err
	}
	f.mu.Lock()
	f.key = key
	before, replayed := f.created[key]
	f.mu.Unlock()
	if replayed {
		return before, true, nil
	}
	id := holdfast.SessionID(newID())
	if req.ID != "" {
		var err error
		if id, err = holdfast.Parse[holdfast.SessionID](req.ID); err != nil {
			return holdfast.Session{}, false, err
		}
	}
	c := journal.NewChange(id)
	c.Create = &journal.Row{Session: holdfast.Session{
		ID: id, Status: holdfast.StatusActive, Agent: holdfast.DefaultAgent, Trust: holdfast.Untrusted,
		Runtime: "native", Model: "scripted", Mode: holdfast.ModeBypassPermissions, Title: req.Title, Tags: []string{},
	}}
	c.Events = []journal.Draft{{Type: holdfast.EventSessionCreated, Data: holdfast.SessionCreated{Title: req.Title}}}
	done, err := f.journal.Commit(ctx, c)
	if err == nil && key != "" {
		f.mu.Lock()
		f.created[key] = done.Row.Session
		f.mu.Unlock()
	}
	return done.Row.Session, false, err
}

func (f *fakeEngine) Session(_ context.Context, id holdfast.SessionID) (holdfast.Session, error) {
	if err := f.see(id); err != nil {
		return holdfast.Session{}, err
	}
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	row := f.store.rows[id]
	if row == nil {
		return holdfast.Session{}, unknownSession(id)
	}
	return row.Session, nil
}

func (f *fakeEngine) AgentStates(_ context.Context, id holdfast.SessionID) ([]holdfast.AgentState, error) {
	if _, err := f.Session(context.TODO(), id); err != nil {
		return nil, err
	}
	return []holdfast.AgentState{{Generation: 1, Runtime: "claude", AgentID: "a", Health: holdfast.HealthCurrent}}, nil
}

func (f *fakeEngine) List(_ context.Context, q holdfast.SessionFilter) (holdfast.SessionPage, error) {
	if err := f.see(q); err != nil {
		return holdfast.SessionPage{}, err
	}
	f.store.mu.Lock()
	defer f.store.mu.Unlock()
	var page holdfast.SessionPage
	for id, row := range f.store.rows {
		if strings.HasPrefix(string(id), q.Name) {
			page.Sessions = append(page.Sessions, row.Session)
		}
	}
	sort.Slice(page.Sessions, func(i, j int) bool { return page.Sessions[i].ID > page.Sessions[j].ID })
	return page, nil
}

func (f *fakeEngine) Update(ctx context.Context, id holdfast.SessionID, req holdfast.UpdateSession) (holdfast.Session, error) {
	if err := f.see(req); err != nil {
		return holdfast.Session{}, err
	}
	s, err := f.Session(ctx, id)
	if err == nil && req.Title != nil {
		s.Title = *req.Title
	}
	return s, err
}

func (f *fakeEngine) move(ctx context.Context, id holdfast.SessionID, to holdfast.Status, typ holdfast.EventType) (holdfast.Session, error) {
	if _, err := f.Session(ctx, id); err != nil {
		return holdfast.Session{}, err
	}
	c := journal.NewChange(id)
	c.Status = []holdfast.Status{to}
	c.Events = []journal.Draft{{Type: typ, Data: holdfast.Reason{}}}
	done, err := f.journal.Commit(ctx, c)
	return done.Row.Session, err
}

func (f *fakeEngine) Pause(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) (holdfast.Session, error) {
	if err := f.see(req); err != nil {
		return holdfast.Session{}, err
	}
	return f.move(ctx, id, holdfast.StatusPaused, holdfast.EventSessionPaused)
}

func (f *fakeEngine) Resume(ctx context.Context, id holdfast.SessionID, req holdfast.ResumeSession) (holdfast.Resumed, error) {
	if err := f.see(req); err != nil {
		return holdfast.Resumed{}, err
	}
	s, err := f.move(ctx, id, holdfast.StatusActive, holdfast.EventSessionResumed)
	return holdfast.Resumed{Session: s, Receipt: &holdfast.Receipt{Tier: holdfast.TierLive}}, err
}

func (f *fakeEngine) End(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) (holdfast.Session, error) {
	if err := f.see(req); err != nil {
		return holdfast.Session{}, err
	}
	return f.move(ctx, id, holdfast.StatusEnded, holdfast.EventSessionEnded)
}

func (f *fakeEngine) Restore(ctx context.Context, id holdfast.SessionID) (holdfast.Session, error) {
	return f.Session(ctx, id)
}

func (f *fakeEngine) Delete(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) error {
	if _, err := f.Session(ctx, id); err != nil {
		return err
	}
	f.store.mu.Lock()
	delete(f.store.rows, id)
	f.store.mu.Unlock()
	return f.see(req)
}

func (f *fakeEngine) Interrupt(ctx context.Context, id holdfast.SessionID) (holdfast.Session, error) {
	return f.Session(ctx, id)
}

func (f *fakeEngine) Send(ctx context.Context, id holdfast.SessionID, msg holdfast.SendMessage) (holdfast.Sent, error) {
	if err := f.see(msg); err != nil {
		return holdfast.Sent{}, err
	}
	s, err := f.Session(ctx, id)
	if err != nil {
		return holdfast.Sent{}, err
	}
	if msg, err = msg.Whole(); err != nil {
		return holdfast.Sent{}, err
	}
	f.mu.Lock()
	if t, ok := f.keys[msg.Key]; ok && msg.Key != "" {
		f.mu.Unlock()
		return holdfast.Sent{Turn: t, Seq: t.MessageSeq - 1, Duplicate: true}, nil
	}
	t := holdfast.Turn{
		ID: holdfast.TurnID(newID()), Session: id, Status: holdfast.TurnRunning,
		Number: int64(len(f.turns[id]) + 1), MessageSeq: s.LastSeq + 1, Text: msg.Text,
	}
	f.turns[id] = append(f.turns[id], t)
	f.keys[msg.Key] = t
	f.mu.Unlock()
	f.append(ctx, id, t.ID, holdfast.EventMessageUser, holdfast.UserMessage{Parts: msg.Parts})
	f.append(ctx, id, t.ID, holdfast.EventTurnStarted, holdfast.TurnStartedData{Number: t.Number, MessageSeq: t.MessageSeq})
	if msg.Text != "hold" {
		f.finish(ctx, t)
	}
	return holdfast.Sent{Turn: t, Seq: s.LastSeq}, nil
}

// finish completes a turn with an answer that echoes it.
func (f *fakeEngine) finish(ctx context.Context, t holdfast.Turn) {
	f.append(ctx, t.Session, t.ID, holdfast.EventMessageAssistant, holdfast.AssistantMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "echo " + t.Text}}})
	f.append(ctx, t.Session, t.ID, holdfast.EventTurnCompleted, holdfast.TurnEnded{Number: t.Number, Result: "echo " + t.Text})
}

func (f *fakeEngine) append(ctx context.Context, id holdfast.SessionID, turn holdfast.TurnID, typ holdfast.EventType, data any) {
	c := journal.NewChange(id)
	c.Events = []journal.Draft{{Type: typ, Turn: turn, Data: data}}
	if _, err := f.journal.Commit(ctx, c); err != nil {
		panic(err)
	}
}

func (f *fakeEngine) Turn(_ context.Context, id holdfast.SessionID, turn holdfast.TurnID) (holdfast.Turn, error) {
	if err := f.see(turn); err != nil {
		return holdfast.Turn{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.turns[id] {
		if t.ID == turn {
			return t, nil
		}
	}
	return holdfast.Turn{}, holdfast.Errorf(holdfast.KindNotFound, "turn", "no turn %s", turn)
}

func (f *fakeEngine) Usage(_ context.Context, id holdfast.SessionID) (holdfast.SessionUsage, error) {
	if err := f.see(id); err != nil {
		return holdfast.SessionUsage{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var out holdfast.SessionUsage
	for _, t := range f.turns[id] {
		if t.Usage != nil {
			out.Usage, out.Turns = out.Usage.Add(*t.Usage), out.Turns+1
		}
	}
	return out, nil
}

func (f *fakeEngine) Turns(_ context.Context, id holdfast.SessionID, after int64, limit int) ([]holdfast.Turn, error) {
	if err := f.see([2]int64{after, int64(limit)}); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.turns[id][min(int(after), len(f.turns[id])):]
	return all[:min(limit, len(all))], nil
}

func (f *fakeEngine) Events(ctx context.Context, id holdfast.SessionID, q holdfast.EventFilter) ([]holdfast.Event, error) {
	if err := f.see(q); err != nil {
		return nil, err
	}
	var out []holdfast.Event
	for e, err := range f.journal.Read(ctx, id, q.After) {
		if err != nil {
			return nil, err
		}
		ok := len(q.Types) == 0
		for _, t := range q.Types {
			ok = ok || t == e.Type
		}
		if ok && len(out) < q.Limit {
			out = append(out, e)
		}
	}
	return out, nil
}

func (f *fakeEngine) Search(_ context.Context, req holdfast.SearchRequest) (holdfast.SearchPage, error) {
	return holdfast.SearchPage{Hits: []holdfast.SearchHit{{Snippet: req.Query}}, Pending: 1}, f.see(req)
}

func (f *fakeEngine) Follow(ctx context.Context, id holdfast.SessionID, after int64) (*journal.Reader, error) {
	if err := f.see(after); err != nil {
		return nil, err
	}
	return f.journal.Follow(ctx, id, after)
}

func (f *fakeEngine) Exec(ctx context.Context, _ holdfast.SessionID, req holdfast.ExecRequest, stdout, stderr io.Writer) (holdfast.ExecResult, error) {
	if err := f.see(req); err != nil {
		return holdfast.ExecResult{}, err
	}
	if f.exec != nil {
		return f.exec(ctx, req, stdout, stderr)
	}
	res := holdfast.ExecResult{Class: holdfast.ExitExit, ExitCode: 3}
	if stdout == nil {
		res.Stdout, res.Stderr = []byte("out\xff"), []byte("err")
		return res, nil
	}
	for _, w := range []io.Writer{stdout, stderr} {
		if _, err := w.Write([]byte("part\xff")); err != nil {
			return holdfast.ExecResult{}, err
		}
	}
	return res, nil
}

func (f *fakeEngine) Terminal(ctx context.Context, _ holdfast.SessionID, req holdfast.TerminalRequest, in io.Reader, out io.Writer, resize <-chan holdfast.TermSize) (holdfast.ExecResult, error) {
	return f.term(ctx, req, in, out, resize)
}

func (f *fakeEngine) ListFiles(_ context.Context, _ holdfast.SessionID, path string) (holdfast.FileList, error) {
	if err := f.see(path); err != nil {
		return holdfast.FileList{}, err
	}
	return holdfast.FileList{Entries: []holdfast.FileInfo{{Path: "a", Type: "file"}}}, nil
}

func (f *fakeEngine) ReadFile(_ context.Context, _ holdfast.SessionID, path string, w io.Writer) error {
	if err := f.see(path); err != nil {
		return err
	}
	f.mu.Lock()
	data, ok := f.files[path]
	f.mu.Unlock()
	switch {
	case path == "dir":
		return holdfast.Errorf(holdfast.KindInvalid, "read", "dir is a directory")
	case path == "cut":
		_, _ = w.Write(bytes.Repeat([]byte("x"), 10000))
		return holdfast.Errorf(holdfast.KindUnavailable, "read", "the box is gone")
	case !ok:
		return holdfast.Errorf(holdfast.KindNotFound, "read", "no file %s", holdfast.Quote(path))
	}
	if len(data) == 0 {
		return nil
	}
	_, err := w.Write(data)
	return err
}

func (f *fakeEngine) WriteFile(_ context.Context, _ holdfast.SessionID, path string, data []byte, mode uint32) (holdfast.FileInfo, error) {
	if err := f.see(path); err != nil {
		return holdfast.FileInfo{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.files[path] = data
	return holdfast.FileInfo{Path: path, Type: "file", Size: int64(len(data)), Mode: mode}, nil
}

func (f *fakeEngine) RemoveFile(_ context.Context, _ holdfast.SessionID, path string, recursive bool) error {
	return f.see([]any{path, recursive})
}

func (f *fakeEngine) Containers(context.Context) ([]holdfast.Container, error) {
	return f.boxes, f.see("containers")
}

// start serves an API over a fake; edit may change the configuration.
func start(t testing.TB, edit func(*Config)) (*fakeEngine, *httptest.Server) {
	t.Helper()
	f := newFake()
	cfg := f.config()
	if edit != nil {
		edit(&cfg)
	}
	a := New(cfg)
	srv := httptest.NewServer(a)
	t.Cleanup(func() {
		a.Stop()
		srv.Close()
	})
	return f, srv
}

func (f *fakeEngine) config() Config {
	return Config{
		Sessions: f, Trash: f, Views: f, Boxes: f, Approvals: f, Agents: fakeAgents{f}, Keys: f.apiKeys(), Secrets: fakeSecrets{}, Audit: fakeAudit{},
		Checkpoints: fakeCheckpoints{f}, Snapshots: fakeSnapshots{f}, Backups: fakeBackups{f},
		Self: Self{
			Version:    "test",
			Containers: f,
			Health:     func(context.Context) holdfast.Health { return f.health },
			Models:     func(context.Context) holdfast.Models { return holdfast.Models{Default: "scripted", Double: true} },
			Server:     func(context.Context) (holdfast.Server, error) { return holdfast.Server{Version: "test"}, nil },
		},
		Access: guard.Access{Token: testToken, Listen: "127.0.0.1:0"},
	}
}
