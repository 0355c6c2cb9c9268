package engine_test

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model/scripted"
	"github.com/holdfast-run/holdfast/agent/tool/builtin"
	"github.com/holdfast-run/holdfast/internal/choices"
	"github.com/holdfast-run/holdfast/internal/driver/mem"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/internal/runtime/native"
)

// machine is a world with boxes: the native runtime with the scripted model and
// the built-in tools, over two mem drivers.
type machine struct {
	*world
	// untrusted and trusted are the drivers; they outlive a restart of the server.
	untrusted, trusted *mem.Driver
	// pool changes the pools' settings.
	pool func(*pool.Config)
	live map[holdfast.Trust]*pool.Pool
	// without is a trust level that this machine has no driver for.
	without holdfast.Trust
	// uidBase and sealer are settings of the engine.
	uidBase uint32
	set     func(*engine.Config)
	sealer  choices.Sealer
	agents  engine.Agents

	mu sync.Mutex
	// at is called when a turn passes a kill point.
	at func(session holdfast.SessionID, point string)
}

// newMachine starts a server with boxes. setUp may change the machine before.
func newMachine(t testing.TB, setUp func(*machine)) *machine {
	t.Helper()
	m := &machine{untrusted: mem.New(mem.Config{}), trusted: mem.New(mem.Config{})}
	w := &world{t: t, dir: t.TempDir()}
	m.world = w
	w.pools = m.pools
	w.tune = func(c *engine.Config) {
		c.At, c.Boxes.UIDBase = m.passed, m.uidBase
		if m.sealer != nil {
			c.Sealer = m.sealer
		}
		if m.agents != nil {
			c.Agents = m.agents
		}
		if m.set != nil {
			m.set(c)
		}
	}
	if setUp != nil {
		setUp(m)
	}
	if w.rt == nil {
		w.rt = loop(t)
	}
	w.start()
	t.Cleanup(func() { w.stop(true) })
	return m
}

func loop(t testing.TB) *native.Runtime {
	t.Helper()
	rt, err := native.New(native.Config{
		Provider: scripted.New(), Tools: builtin.All(), Now: time.Now, Rand: func() float64 { return 0.5 },
	})
	if err != nil {
		t.Fatal(err)
	}
	return rt
}

func (m *machine) pools() map[holdfast.Trust]*pool.Pool {
	m.live = map[holdfast.Trust]*pool.Pool{}
	for trust, d := range map[holdfast.Trust]*mem.Driver{holdfast.Untrusted: m.untrusted, holdfast.Trusted: m.trusted} {
		cfg := pool.Config{
			Driver: d.Reopen(), Token: m.store.Epoch(), FreezeAfter: -1, StopAfter: -1,
			OnEvent: func(ev pool.Event) { m.BoxEvent(ev) },
		}
		if m.pool != nil {
			m.pool(&cfg)
		}
		if trust == m.without {
			continue
		}
		m.live[trust] = pool.New(cfg)
	}
	if m.trusted == m.untrusted {
		m.live[holdfast.Trusted] = m.live[holdfast.Untrusted]
	}
	return m.live
}

func (m *machine) passed(session holdfast.SessionID, point string) {
	m.mu.Lock()
	at := m.at
	m.mu.Unlock()
	if at != nil {
		at(session, point)
	}
}

// when calls act the first time that a turn passes a point, in the turn's own
// goroutine, and returns a channel that is closed afterwards.
func (m *machine) when(point string, act func()) <-chan struct{} {
	done := make(chan struct{})
	var once sync.Once
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at = func(_ holdfast.SessionID, p string) {
		if p != point {
			return
		}
		once.Do(func() {
			if act != nil {
				act()
			}
			close(done)
		})
	}
	return done
}

// reached waits for a channel of when.
func (m *machine) reached(done <-chan struct{}) {
	m.t.Helper()
	select {
	case <-done:
	case <-time.After(patience):
		m.t.Fatal("the turn never got there")
	}
}

// run sends a message and waits for the end of its turn.
func (m *machine) run(id holdfast.SessionID, text string) holdfast.Turn {
	m.t.Helper()
	return m.ended(id, m.send(id, text).ID)
}

// file reads a file of a session's workspace from the host; empty when there is
// none.
func (m *machine) file(id holdfast.SessionID, name string) string {
	m.t.Helper()
	b, err := os.ReadFile(m.path(id, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.t.Fatal(err)
	}
	return string(b)
}

func (m *machine) path(id holdfast.SessionID, name string) string {
	return filepath.Join(m.dir, "sessions", string(id), "workspace", name)
}

// put writes a file into a session's workspace from the host.
func (m *machine) put(id holdfast.SessionID, name, text string) {
	m.t.Helper()
	if err := os.WriteFile(m.path(id, name), []byte(text), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

// appears waits for a file in a session's workspace.
func (m *machine) appears(id holdfast.SessionID, name string) {
	m.t.Helper()
	until(m.t, func() bool { _, err := os.Stat(m.path(id, name)); return err == nil })
}

// datas decodes the payloads of a session's events of one type.
func datas[T any](w *world, id holdfast.SessionID, typ holdfast.EventType) []T {
	w.t.Helper()
	var out []T
	for _, ev := range w.log(id) {
		if ev.Type != typ {
			continue
		}
		var d T
		if err := ev.Decode(&d); err != nil {
			w.t.Fatal(err)
		}
		out = append(out, d)
	}
	return out
}

// sound checks what holds of every log: numbers are dense and every turn has
// exactly one end.
func (w *world) sound(id holdfast.SessionID) {
	w.t.Helper()
	ends := map[holdfast.TurnID]int{}
	for i, ev := range w.log(id) {
		if ev.Seq != int64(i)+1 {
			w.t.Errorf("event %d has number %d", i+1, ev.Seq)
		}
		if ev.EndsTurn() {
			ends[ev.Turn]++
		}
	}
	unsound := false
	for last := int64(0); ; {
		turns, err := w.Turns(w.t.Context(), id, last, 500)
		if err != nil {
			w.t.Fatal(err)
		}
		if len(turns) == 0 {
			break
		}
		for _, turn := range turns {
			last = turn.Number
			want := 0
			if turn.Status.Terminal() {
				want = 1
			}
			if ends[turn.ID] != want {
				unsound = true
				w.t.Errorf("turn %d is %s and has %d ends in the log", turn.Number, turn.Status, ends[turn.ID])
			}
		}
	}
	if unsound {
		w.t.Log(w.dump(id))
	}
}

type step map[string]any

func bash(command string) step {
	return step{"tool": "Bash", "input": step{"command": command}}
}

func say(text string) step { return step{"say": text} }

// script is a message that the scripted model obeys.
func script(steps ...step) string {
	b, err := json.Marshal(steps)
	if err != nil {
		panic(err)
	}
	return "<script>" + string(b) + "</script>"
}

// gated is a command that shows that it runs, waits for the file go, and then
// appends one line.
const gated = "echo begun > begun; until [ -f go ]; do sleep 0.01; done; echo line >> lines; echo done"

// lines counts the lines of a file in a session's workspace.
func (m *machine) lines(id holdfast.SessionID, name string) int {
	return strings.Count(m.file(id, name), "\n")
}

func (m *machine) box(id holdfast.SessionID) holdfast.BoxID { return id.Box() }

// record writes an event into a session's log, as a turn of an earlier life.
func (w *world) record(id holdfast.SessionID, typ holdfast.EventType, data any) {
	w.t.Helper()
	c := journal.NewChange(id)
	c.Events = []journal.Draft{{Type: typ, Data: data}}
	if _, err := w.journal.Commit(w.t.Context(), c); err != nil {
		w.t.Fatal(err)
	}
}

func newUUID(t testing.TB) string {
	t.Helper()
	id, err := holdfast.NewUUID(time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return id
}
