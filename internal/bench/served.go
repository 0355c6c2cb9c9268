package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// serverAlone measures a server without turns: how fast it creates sessions, and its memory.
func (p *pass) serverAlone(ctx context.Context) error {
	s, err := p.serve(ctx, "alone")
	if err != nil {
		return err
	}
	defer s.stop()
	if _, err := times(50, func(int) error { _, err := s.create(ctx); return err }); err != nil {
		return err
	}
	time.Sleep(2 * time.Second) // until the server is idle
	p.add(Figure{Name: "server RSS at rest", Unit: "MB", Samples: []float64{memoryOf(s.PID, "VmRSS:")}, Judge: "size", Gate: 50, Rule: "50 MB", Baseline: "118 MB"})
	create := Figure{Name: "create session (durable)", Unit: "ms", Judge: "p50", Gate: p.commit + 1.5, Rule: "one commit + 1.5 ms", Baseline: "84.7 ms"}
	if create.Samples, err = times(300, func(int) error { _, err := s.create(ctx); return err }); err != nil {
		return err
	}
	p.add(create)
	perSecond, err := rate(8, 4*time.Second, func(int, int) error { _, err := s.create(ctx); return err })
	if err != nil {
		return err
	}
	p.add(Figure{Name: "creations per second, concurrency 8", Unit: "/s", Samples: []float64{perSecond}, Judge: "rate", Gate: 2000, More: true, Rule: "2,000", Baseline: "20.8"})
	return nil
}

// script50 is a script for a turn that says one word after 50 ms.
const script50 = `<script>[{"say":"hello","delay_ms":50}]</script>`

// firstOf sends a message and returns the milliseconds until the first byte of an event and
// until the model's first event.
func (s *subject) firstOf(ctx context.Context, id holdfast.SessionID, text string) (first, model float64, err error) {
	began := time.Now()
	st, err := s.Stream(ctx, id, holdfast.SendMessage{Text: text})
	if err != nil {
		return 0, 0, err
	}
	defer st.Close()
	for ev, err := range st.Events(ctx) {
		switch {
		case err != nil:
			return first, model, err
		case first == 0:
			first = clock.Milliseconds(time.Since(began))
		}
		if model == 0 && (ev.Type == holdfast.DeltaText || ev.Type == holdfast.EventMessageAssistant) {
			model = clock.Milliseconds(time.Since(began))
		}
		switch {
		case !ev.EndsTurn():
		case model == 0:
			return first, model, fmt.Errorf("the turn ended before any output of the model: %s %s", ev.Type, ev.Data)
		default:
			return first, model, nil
		}
	}
	return first, model, io.ErrUnexpectedEOF
}

// session starts a server and creates a session on it. The caller stops the server.
func (p *pass) session(ctx context.Context, name string) (*subject, holdfast.SessionID, error) {
	s, err := p.serve(ctx, name)
	if err != nil {
		return nil, "", err
	}
	id, err := s.create(ctx)
	if err != nil {
		s.stop()
	}
	return s, id, err
}

// conversations measures turns, alone and thirty at a time.
func (p *pass) conversations(ctx context.Context) error {
	s, id, err := p.session(ctx, "turns")
	if err != nil {
		return err
	}
	defer s.stop()
	first := Figure{Name: "message → first event byte", Unit: "ms", Judge: "p50", Gate: p.commit + 1, Rule: "one commit + 1 ms", Baseline: "3.7 ms"}
	model := Figure{Name: "added delay to the first model event", Unit: "ms", Judge: "p50", Gate: 1.5, Rule: "1.5 ms", Baseline: "4.3 ms"}
	for i := range 70 {
		f, m, err := s.firstOf(ctx, id, script50)
		if err != nil {
			return err
		}
		if i >= 10 {
			first.Samples, model.Samples = append(first.Samples, f), append(model.Samples, m-50)
		}
	}
	p.add(first)
	p.add(model)
	ids := make([]holdfast.SessionID, 30)
	for i := range ids {
		if ids[i], err = s.create(ctx); err != nil {
			return err
		}
	}
	many := Figure{Name: "added delay to the first model event, 30 sessions", Unit: "ms", Judge: "p50", Gate: 10, Rule: "10 ms", Baseline: "124 ms"}
	var mu sync.Mutex
	if _, err := rate(len(ids), 3*time.Second, func(w, _ int) error {
		_, m, err := s.firstOf(ctx, ids[w], script50)
		mu.Lock()
		many.Samples = append(many.Samples, m-50)
		mu.Unlock()
		return err
	}); err != nil {
		return err
	}
	p.add(many)
	return p.turnRate(ctx, s, ids)
}

func (p *pass) turnRate(ctx context.Context, s *subject, ids []holdfast.SessionID) error {
	for _, id := range ids {
		if err := s.Turn(ctx, id, bashTrue); err != nil {
			return err
		}
	}
	load, err := s.load(len(ids))
	if err != nil {
		return err
	}
	defer load.CloseIdleConnections()
	perSecond, cost, err := load.turns(ctx, s.PID, ids, 6*time.Second)
	if err != nil {
		return err
	}
	p.add(Figure{Name: "turns per second, 30 sessions, one `Bash true` each", Unit: "/s", Samples: []float64{perSecond}, Judge: "rate", Gate: 600, More: true, Rule: "600", Baseline: "162"})
	own := Figure{Name: "the server's own CPU for such a turn", Unit: "ms", Samples: []float64{cost}, Judge: "size", Gate: 1.1, Rule: "1.1 ms"}
	if cost <= 0 {
		own.Samples, own.Missing = nil, "the system does not report the CPU time of a process"
	}
	p.add(own)
	return nil
}

// load is a client that searches for text in the received bytes and decodes nothing, because it
// shares the cores with the server that it measures.
type load struct {
	*http.Transport
	url, token string
}

func (s *subject) load(connections int) (*load, error) {
	token, err := os.ReadFile(filepath.Join(s.data, "token"))
	return &load{
		Transport: &http.Transport{MaxIdleConnsPerHost: connections, DisableCompression: true},
		url:       s.URL, token: strings.TrimSpace(string(token)),
	}, err
}

// stream requests an event stream of a session.
func (l *load) stream(ctx context.Context, method string, id holdfast.SessionID, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, l.url+"/v1/sessions/"+string(id)+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+l.token)
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Prefer", "stream")
	return l.RoundTrip(req)
}

// turn sends a message and reads its turn, which must complete.
func (l *load) turn(ctx context.Context, id holdfast.SessionID, text string) error {
	body, err := json.Marshal(holdfast.SendMessage{Text: text})
	if err != nil {
		return err
	}
	resp, err := l.stream(ctx, http.MethodPost, id, "/turns", body)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	events, err := io.ReadAll(resp.Body)
	if err == nil && !bytes.Contains(events, []byte("\nevent: "+holdfast.EventTurnCompleted+"\n")) {
		err = fmt.Errorf("the server's answer with status %s has no event of a completed turn: %s", resp.Status, events)
	}
	return err
}

// turns runs turns in all sessions at once for a while. It returns how many there were per second, and the milliseconds
// of CPU time that the server took for one, 0 if that is unknown.
func (l *load) turns(ctx context.Context, server int, ids []holdfast.SessionID, span time.Duration) (perSecond, cost float64, err error) {
	var n atomic.Int64
	before := processorTime(server)
	perSecond, err = rate(len(ids), span, func(w, _ int) error {
		n.Add(1)
		return l.turn(ctx, ids[w], bashTrue)
	})
	return perSecond, clock.Milliseconds(processorTime(server)-before) / float64(n.Load()), err
}

// resumes measures warm and cold resumes.
func (p *pass) resumes(ctx context.Context) error {
	s, err := p.serve(ctx, "resume")
	if err != nil {
		return err
	}
	ids := make([]holdfast.SessionID, 20)
	err = warmResumes(ctx, p, s, ids)
	s.stop()
	if err != nil {
		return err
	}
	return p.coldResumes(ctx, ids)
}

// warmResumes creates sessions, stores their ids in ids, measures warm resumes of them, and then pauses all of them.
func warmResumes(ctx context.Context, p *pass, s *subject, ids []holdfast.SessionID) (err error) {
	for i := range ids {
		if ids[i], err = s.create(ctx); err == nil {
			err = s.Turn(ctx, ids[i], bashTrue)
		}
		if err != nil {
			return err
		}
	}
	warm := Figure{Name: "warm resume", Unit: "ms", Judge: "p50", Gate: p.commit + 0.8, Rule: "one commit + 0.8 ms", Baseline: "2.8 ms"}
	for i := range 60 {
		id := ids[i%len(ids)]
		if _, err := s.PauseSession(ctx, id, holdfast.EndSession{}); err != nil {
			return err
		}
		began := time.Now()
		r, err := s.ResumeSession(ctx, id, holdfast.ResumeSession{})
		warm.Samples = append(warm.Samples, clock.Milliseconds(time.Since(began)))
		if err == nil && (r.Receipt == nil || r.Receipt.Tier != holdfast.TierLive) {
			err = fmt.Errorf("a resume that should be warm was not; its receipt is %+v", r.Receipt)
		}
		if err != nil {
			return err
		}
	}
	p.add(warm)
	for _, id := range ids {
		if _, err := s.PauseSession(ctx, id, holdfast.EndSession{}); err != nil {
			return err
		}
	}
	return nil
}

func (p *pass) coldResumes(ctx context.Context, ids []holdfast.SessionID) error {
	s, err := p.serve(ctx, "resume")
	if err != nil {
		return err
	}
	defer s.stop()
	native := Figure{Name: "cold resume after server restart, native", Unit: "ms", Judge: "p50", Gate: 10, Rule: "10 ms", Baseline: "95 ms"}
	ready := Figure{Name: "cold resume after server restart, to a ready box", Unit: "ms", Judge: "p50", Gate: 50, Rule: "50 ms", Baseline: "95 ms"}
	for _, id := range ids {
		began := time.Now()
		r, err := s.ResumeSession(ctx, id, holdfast.ResumeSession{})
		native.Samples = append(native.Samples, clock.Milliseconds(time.Since(began)))
		if err != nil {
			return err
		}
		if r.Receipt == nil || r.Receipt.Path != "cold" || r.Receipt.Files != holdfast.FilesKept {
			return fmt.Errorf("a resume that should be cold and keep the files gave the receipt %+v", r.Receipt)
		}
		if _, err := s.Exec(ctx, id, holdfast.ExecRequest{Argv: []string{"true"}}); err != nil {
			return err
		}
		ready.Samples = append(ready.Samples, clock.Milliseconds(time.Since(began)))
	}
	p.add(native)
	p.add(ready)
	return nil
}

// readers measures a thousand readers of one session that shows 20 deltas a second.
func (p *pass) readers(ctx context.Context) error {
	f := Figure{Name: "1,000 readers of one session, 20 deltas/s: delivery", Unit: "ms", Judge: "p99", Gate: 100, Rule: "100 ms"}
	s, id, err := p.session(ctx, "readers")
	if err != nil {
		return err
	}
	defer s.stop()
	const n = 1000
	load, err := s.load(n)
	if err != nil {
		return err
	}
	defer load.CloseIdleConnections()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var all sync.WaitGroup
	var mu sync.Mutex
	open := make(chan error, n)
	for range n {
		all.Go(func() {
			delays, err := load.follow(ctx, id, open)
			if err != nil && ctx.Err() == nil {
				return
			}
			mu.Lock()
			f.Samples = append(f.Samples, delays...)
			mu.Unlock()
		})
	}
	for range n {
		if err := <-open; err != nil {
			cancel()
			all.Wait()
			return err
		}
	}
	const deltas = 100
	text := fmt.Sprintf(`<script>[{"tool":"Bash","input":{"command":"for i in $(seq %d); do date +t%%s%%N; sleep 0.05; done"}},{"say":"ok"}]</script>`, deltas)
	err = s.Turn(ctx, id, text)
	all.Wait()
	if err != nil {
		return err
	}
	if len(f.Samples) < n*deltas/2 {
		p.missing(f, fmt.Errorf("only %d of %d parts of the command's output arrived", len(f.Samples), n*deltas))
		return nil
	}
	p.add(f)
	return nil
}

// follow reads an event stream to the end of the first turn. For each time stamp in tool output
// it returns how old that was on arrival, in milliseconds.
func (l *load) follow(ctx context.Context, id holdfast.SessionID, open chan<- error) ([]float64, error) {
	resp, err := l.stream(ctx, http.MethodGet, id, "/events", nil)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	open <- err
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	var out []float64
	for scan := bufio.NewScanner(resp.Body); scan.Scan(); {
		line := scan.Text()
		now := time.Now().UnixNano()
		if strings.HasPrefix(line, "event: turn.completed") {
			return out, nil
		}
		if !strings.HasPrefix(line, "data: ") || !strings.Contains(line, `"tool.output"`) {
			continue
		}
		for _, word := range strings.Split(line, `t1`)[1:] {
			digits := word[:min(18, len(word))]
			if ns, err := strconv.ParseInt("1"+digits, 10, 64); err == nil && len(digits) == 18 {
				out = append(out, float64(now-ns)/1e6)
			}
		}
	}
	return out, io.ErrUnexpectedEOF
}

// many measures a server with many idle sessions.
func (p *pass) many(ctx context.Context) error {
	if err := p.fill(ctx, "many", 10_000, true); err != nil {
		return err
	}
	s, err := p.serve(ctx, "many")
	if err != nil {
		return err
	}
	if _, err := s.Sessions(ctx, holdfast.SessionFilter{}); err != nil {
		s.stop()
		return err
	}
	size := memoryOf(s.PID, "VmRSS:")
	p.add(Figure{Name: "server RSS with 10,000 paused sessions", Unit: "MB", Samples: []float64{size}, Judge: "size", Gate: 80, Rule: "80 MB"})
	talk, err := p.talkOnly(ctx, s)
	s.stop()
	if err != nil {
		return err
	}
	p.add(talk)
	if err := p.fill(ctx, "many", 90_000, false); err != nil {
		return err
	}
	if s, err = p.serve(ctx, "many"); err != nil {
		return err
	}
	defer s.stop()
	list := Figure{Name: "list 50 of 100,000 sessions", Unit: "ms", Judge: "p50", Gate: 5, Rule: "5 ms"}
	if list.Samples, err = times(100, func(int) error {
		_, err := s.Sessions(ctx, holdfast.SessionFilter{Limit: 50})
		return err
	}); err != nil {
		return err
	}
	p.add(list)
	return nil
}

// talkOnly measures the server's memory for sessions without a box.
func (p *pass) talkOnly(ctx context.Context, s *subject) (Figure, error) {
	f := Figure{Name: "idle session that only talks, server memory", Unit: "KiB", Judge: "size", Gate: 2, Rule: "2 KiB", Baseline: "49 MB"}
	talk := func(int, int) error {
		id, err := s.create(ctx)
		if err != nil {
			return err
		}
		return s.Turn(ctx, id, "hello")
	}
	if _, err := rate(8, 6*time.Second, talk); err != nil {
		return f, err
	}
	before := memoryOf(s.PID, "VmRSS:")
	began := time.Now()
	perSecond, err := rate(8, 6*time.Second, talk)
	if err != nil {
		return f, err
	}
	n := perSecond * time.Since(began).Seconds()
	f.Samples = []float64{max(0, (memoryOf(s.PID, "VmRSS:")-before)*1024/n)}
	return f, nil
}

// fill writes sessions directly into the database of a server that does not run.
func (p *pass) fill(ctx context.Context, name string, n int, paused bool) error {
	db, err := p.commits(ctx, name, 0)
	if err != nil {
		return err
	}
	defer db.close()
	var all errgroup.Group
	for w := range 64 {
		all.Go(func() error {
			for i := w; i < n; i += 64 {
				id, err := bareSession(ctx, db.journal, p.cfg.Clock())
				if err == nil && paused {
					c := journal.NewChange(id)
					c.Status = []holdfast.Status{holdfast.StatusPaused}
					c.Events = []journal.Draft{{Type: holdfast.EventSessionPaused, Data: holdfast.Reason{Reason: "bench"}}}
					_, err = db.journal.Commit(ctx, c)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	return all.Wait()
}
