package builtin

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/internal/driver/mem"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds what a test waits for.
const patience = 30 * time.Second

// world is a box of the mem driver with the tools on it.
type world struct {
	*testing.T
	drv   *mem.Driver
	id    holdfast.BoxID
	dir   string
	box   *sandbox.Box
	token uint64

	mu   sync.Mutex
	live strings.Builder
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, drv: mem.New(mem.Config{}), id: "w-test"}
	w.dir = t.TempDir()
	spec := sandbox.Spec{Box: w.id, Dir: w.dir}
	if _, err := w.drv.Ensure(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
		defer cancel()
		_ = w.box.Close()
		if err := w.drv.Remove(ctx, w.id); err != nil {
			t.Error(err)
		}
	})
	w.connect()
	return w
}

// connect makes a new pipe, as the next server would.
func (w *world) connect() {
	w.Helper()
	if w.box != nil {
		_ = w.box.Close()
	}
	conn, err := w.drv.Connect(w.Context(), w.id)
	if err != nil {
		w.Fatal(err)
	}
	w.token++
	if w.box, err = sandbox.Dial(w.Context(), w.id, conn, w.token, nil); err != nil {
		w.Fatal(err)
	}
}

func find(t *testing.T, name string) tool.Tool {
	t.Helper()
	for _, b := range All() {
		if b.Spec().Name == name {
			return b
		}
	}
	t.Fatalf("there is no tool %s", name)
	return nil
}

func newCall(t *testing.T) holdfast.CallID {
	t.Helper()
	id, err := holdfast.NewUUID(time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return holdfast.CallID(id)
}

// call runs a tool with a new id.
func (w *world) call(name, input string) (tool.Result, error) {
	w.Helper()
	return w.callAs(w.Context(), newCall(w.T), name, input)
}

func (w *world) callAs(ctx context.Context, id holdfast.CallID, name, input string) (tool.Result, error) {
	w.Helper()
	return find(w.T, name).Run(ctx, tool.Call{
		ID: id, Input: json.RawMessage(input), Box: w.box,
		Output: func(_, text string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.live.WriteString(text)
		},
	})
}

func (w *world) shown() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.live.String()
}

// good is a call that must go well; its content.
func (w *world) good(name, input string) string {
	w.Helper()
	res, err := w.call(name, input)
	if err != nil || res.IsError || res.Outcome != holdfast.ExitOK {
		w.Fatalf("%s %s: %+v (%v)", name, input, res, err)
	}
	return res.Content
}

// refused is a call that must be answered with an error that has part in it.
func (w *world) refused(name, input, part string) {
	w.Helper()
	res, err := w.call(name, input)
	if err != nil || !res.IsError || res.Outcome != holdfast.ExitError || !strings.Contains(res.Content, part) {
		w.Errorf("%s %s: %+v (%v), want an error with %q", name, input, res, err, part)
	}
}

func (w *world) put(path, content string) {
	w.Helper()
	if _, err := w.box.Write(w.Context(), sandbox.Call{ID: newCall(w.T)}, wire.WriteRequest{Path: path, Parents: true}, []byte(content)); err != nil {
		w.Fatal(err)
	}
}

func (w *world) get(path string) string {
	w.Helper()
	var b strings.Builder
	if _, err := w.box.Read(w.Context(), wire.ReadRequest{Path: path}, &b); err != nil {
		w.Fatal(err)
	}
	return b.String()
}

// eventually waits for a condition.
func (w *world) eventually(what string, cond func() bool) {
	w.Helper()
	for end := time.Now().Add(patience); !cond(); {
		if time.Now().After(end) {
			w.Fatalf("it never came to it: %s", what)
		}
		timer := time.NewTimer(2 * time.Millisecond)
		<-timer.C
	}
}

func quote(s string) string {
	b, _ := json.Marshal(s)
	return string(b)
}

func TestSpecs(t *testing.T) {
	effects := map[string]tool.Effect{
		"Read": tool.Read, "Write": tool.Mutate, "Edit": tool.Mutate, "Bash": tool.Mutate,
		"Glob": tool.Read, "Grep": tool.Read, "LS": tool.Read, "TodoWrite": tool.Read,
	}
	if len(All()) != len(effects) {
		t.Errorf("%d tools, want %d", len(All()), len(effects))
	}
	for _, b := range All() {
		s := b.Spec()
		if effects[s.Name] != s.Effect || s.Description == "" {
			t.Errorf("%s: effect %d, description %q", s.Name, s.Effect, s.Description)
		}
		if (s.Where == tool.InServer) != (s.Name == "TodoWrite") {
			t.Errorf("%s acts in place %d", s.Name, s.Where)
		}
		var sch struct {
			Type                 string
			Properties           map[string]struct{ Type string }
			Required             []string
			AdditionalProperties *bool
		}
		if err := json.Unmarshal(s.Schema, &sch); err != nil {
			t.Errorf("%s: %v", s.Name, err)
			continue
		}
		if sch.Type != "object" || sch.AdditionalProperties == nil || *sch.AdditionalProperties {
			t.Errorf("%s: the schema is not a closed object", s.Name)
		}
		for _, r := range sch.Required {
			if _, ok := sch.Properties[r]; !ok {
				t.Errorf("%s requires %q, which it does not describe", s.Name, r)
			}
		}
	}
}

// example is a good input of each tool, with every field.
var example = map[string]map[string]any{
	"Read":      {"file_path": "f", "offset": 1, "limit": 5},
	"Write":     {"file_path": "f", "content": "a\nb\n"},
	"Edit":      {"file_path": "f", "old_string": "a", "new_string": "x", "replace_all": true},
	"Bash":      {"command": "true", "timeout": 60000, "description": "nothing"},
	"Glob":      {"pattern": "*", "path": "."},
	"Grep":      {"pattern": "b", "path": ".", "glob": "*", "output_mode": "content", "-i": true, "-n": false, "-A": 1, "-B": 1, "-C": 2, "multiline": false, "head_limit": 9},
	"LS":        {"path": ".", "ignore": []string{"*.tmp"}},
	"TodoWrite": {"todos": []map[string]string{{"content": "a", "status": "pending"}}},
}

// TestInputIsStrict: of every tool, every field that is missing, unknown or of
// another type is named, and nothing is done.
func TestInputIsStrict(t *testing.T) {
	w := newWorld(t)
	w.put("f", "a\nb\n")
	for _, b := range All() {
		s := b.Spec()
		var sch struct {
			Properties map[string]struct{ Type string }
			Required   []string
		}
		if err := json.Unmarshal(s.Schema, &sch); err != nil {
			t.Fatal(err)
		}
		with := func(name string, v any) string {
			in := map[string]any{}
			for k, old := range example[s.Name] {
				in[k] = old
			}
			if in[name] = v; v == nil {
				delete(in, name)
			}
			raw, _ := json.Marshal(in)
			return string(raw)
		}
		for _, r := range sch.Required {
			w.refused(s.Name, with(r, nil), fmt.Sprintf("%q is missing", r))
		}
		for name, p := range sch.Properties {
			wrong := any("text")
			if p.Type == "string" {
				wrong = 5
			}
			w.refused(s.Name, with(name, wrong), fmt.Sprintf("%q", name))
			if p.Type == "integer" {
				w.refused(s.Name, with(name, 1.5), "whole number")
				w.refused(s.Name, with(name, -1), "from")
				w.refused(s.Name, with(name, "5"), "not a string")
			}
			w.refused(s.Name, with(strings.ToUpper(name)+"_", 1), "unknown input field")
		}
		for _, raw := range []string{"", "null", "[]", `"text"`, "5", "{", `{"a":}`} {
			w.refused(s.Name, raw, "not a JSON object")
		}
		w.good(s.Name, with("file_path ", nil))
		w.put("f", "a\nb\n")
	}
	w.refused("Read", `{"File_Path":"f"}`, "missing")
	w.good("Read", `{"file_path":"f","offset":null,"limit":3.0}`)
}

func FuzzInput(f *testing.F) {
	for name, in := range example {
		raw, _ := json.Marshal(in)
		f.Add(name, raw)
	}
	f.Add("TodoWrite", []byte(`{"todos":[{}]}`))
	f.Add("Grep", []byte(`{"pattern":"a","-A":1e400}`))
	f.Fuzz(func(t *testing.T, _ string, raw []byte) {
		in := newInput(raw)
		in.text("file_path", true)
		in.number("offset", 1, 0, 100)
		in.flag("-i", false)
		in.texts("ignore")
		if err := in.done(); err != nil && !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Fatalf("kind of %v", err)
		}
		if _, err := find(t, "TodoWrite").Run(t.Context(), tool.Call{Input: raw}); err != nil {
			t.Fatal(err)
		}
	})
}

func TestTodo(t *testing.T) {
	w := newWorld(t)
	got := w.good("TodoWrite", `{"todos":[{"content":"a","status":"completed"},{"content":"b","status":"in_progress","activeForm":"doing b"},{"content":"c","status":"pending"}]}`)
	want := "The list has 1 completed, 1 in progress, 1 pending.\n[x] a\n[>] b\n[ ] c"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	w.good("TodoWrite", `{"todos":[]}`)
	w.refused("TodoWrite", `{"todos":[{"content":"a","status":"pending"},{"content":"b","status":"done"}]}`, `todos[1]: the input field "status" must be one of`)
	w.refused("TodoWrite", `{"todos":[{"status":"pending"}]}`, `todos[0]: the input field "content" is missing`)
	w.refused("TodoWrite", `{"todos":[{"content":"a","status":"pending","id":"1"}]}`, `"id"`)
	w.refused("TodoWrite", `{"todos":["a"]}`, "todos[0]: the input is a string")
	w.refused("TodoWrite", `{"todos":[`+strings.Repeat(`{},`, 200)+`{}]}`, "201 entries")
}

func TestNeedsABox(t *testing.T) {
	for _, b := range All() {
		if b.Spec().Where == tool.InServer {
			continue
		}
		raw, _ := json.Marshal(example[b.Spec().Name])
		if _, err := b.Run(t.Context(), tool.Call{ID: "x", Input: raw}); !holdfast.IsKind(err, holdfast.KindUnavailable) {
			t.Errorf("%s without a box: %v", b.Spec().Name, err)
		}
	}
	w := newWorld(t)
	if _, err := w.callAs(t.Context(), "", "Write", `{"file_path":"f","content":""}`); !holdfast.IsKind(err, holdfast.KindInternal) {
		t.Errorf("Write without an id: %v", err)
	}
}

// TestBrokenPipe: a tool whose box is lost says unavailable, which is not a result.
func TestBrokenPipe(t *testing.T) {
	w := newWorld(t)
	w.put("f", "a\nb\n")
	if !w.drv.KillBox(w.id) {
		t.Fatal("no box to kill")
	}
	for _, b := range All() {
		if b.Spec().Where == tool.InServer {
			continue
		}
		raw, _ := json.Marshal(example[b.Spec().Name])
		if res, err := w.call(b.Spec().Name, string(raw)); !holdfast.IsKind(err, holdfast.KindUnavailable) {
			t.Errorf("%s: %+v (%v)", b.Spec().Name, res, err)
		}
	}
}

func TestEndedContext(t *testing.T) {
	w := newWorld(t)
	w.put("f", "a\nb\n")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, b := range All() {
		raw, _ := json.Marshal(example[b.Spec().Name])
		res, err := w.callAs(ctx, newCall(t), b.Spec().Name, string(raw))
		switch {
		case b.Spec().Where == tool.InServer:
		case b.Spec().Effect == tool.Read:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %+v (%v)", b.Spec().Name, res, err)
			}
		default:
			if err != nil || res.Outcome != holdfast.ExitCanceled || !res.IsError || !strings.Contains(res.Content, "before it began") {
				t.Errorf("%s: %+v (%v)", b.Spec().Name, res, err)
			}
		}
	}
	if got := w.get("f"); got != "a\nb\n" {
		t.Errorf("something was done: %q", got)
	}
}
