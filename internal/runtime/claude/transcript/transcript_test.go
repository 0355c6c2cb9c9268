package transcript_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime/claude/transcript"
)

const agentID = "11111111-1111-4111-8111-111111111111"

// said is a line of the CLI's kind.
func said(kind, uuid, parent, text string) string {
	up := "null"
	if parent != "" {
		up = `"` + parent + `"`
	}
	return fmt.Sprintf(`{"parentUuid":%s,"isSidechain":false,"type":%q,"uuid":%q,"message":{"role":%q,"content":%q}}`, up, kind, uuid, kind, text)
}

// talk is a conversation of n turns, as lines.
func talk(n int) []string {
	var lines []string
	parent := ""
	for i := range n {
		add := func(kind, text string) {
			id := fmt.Sprintf("%s-%d", kind, i)
			lines = append(lines, said(kind, id, parent, text))
			parent = id
		}
		lines = append(lines, `{"type":"queue-operation","operation":"enqueue"}`)
		add("user", fmt.Sprint("question <", i, ">"))
		add("attachment", "today")
		add("assistant", fmt.Sprint("answer & ", i))
		lines = append(lines, `{"type":"last-prompt"}`)
	}
	return lines
}

// mirrored is what the log holds of lines: encoded as events are.
func mirrored(t testing.TB, file string, lines ...string) holdfast.AgentMirrored {
	t.Helper()
	m := holdfast.AgentMirrored{Generation: 1, File: file}
	for _, l := range lines {
		m.Entries = append(m.Entries, json.RawMessage(l))
	}
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	m = holdfast.AgentMirrored{}
	if err := json.Unmarshal(raw, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func record(t testing.TB, lines []string) *transcript.Record {
	t.Helper()
	r := new(transcript.Record)
	r.Add(mirrored(t, transcript.Main, lines...))
	r.Completed()
	return r
}

func file(lines []string) string { return strings.Join(lines, "\n") + "\n" }

// verdict checks a file that comes in pieces.
func verdict(r *transcript.Record, name, data string, piece int) error {
	c := r.Check(name)
	for len(data) > 0 {
		n := min(len(data), max(piece, 1))
		_, _ = c.Write([]byte(data[:n]))
		data = data[n:]
	}
	return c.Verdict()
}

func TestAnIntactFilePasses(t *testing.T) {
	lines := talk(3)
	r := record(t, lines)
	r.Answered("assistant-2")
	if err := r.Whole(); err != nil || r.Len() != 9 {
		t.Errorf("%d entries: %v", r.Len(), err)
	}
	more := append(talk(3), `{"type":"api-request-blob","data":"only the file has these"}`)
	for name, data := range map[string]string{
		"as it is":              file(lines),
		"with bookkeeping":      file(more),
		"with a turn cut short": file(append(more, said("user", "user-3", "assistant-2", "next"), said("assistant", "a-3", "user-3", "I am g"))),
		"written otherwise":     strings.ReplaceAll(file(lines), `{"parentUuid"`, `{ "parentUuid"`),
	} {
		for _, piece := range []int{1, 7, 1 << 20} {
			if err := verdict(r, transcript.Main, data, piece); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestABrokenFileFails(t *testing.T) {
	lines := talk(3)
	whole := file(lines)
	r := record(t, lines)
	without := func(i int) []string { return append(append([]string{}, lines[:i]...), lines[i+1:]...) }
	swapped := func(from, to string) string { return strings.Replace(whole, from, to, 1) }
	for name, c := range map[string]struct{ data, want string }{
		"empty":              {"", "empty"},
		"half":               {whole[:len(whole)/2], "has no newline"},
		"half, line ended":   {whole[:len(whole)/2] + "\n", "is not a valid entry"},
		"no last line end":   {whole[:len(whole)-1], "has no newline"},
		"NULs at the end":    {whole + "\x00\x00\x00", "has no newline"},
		"all NULs":           {strings.Repeat("\x00", len(whole)), "has no newline"},
		"NULs in it":         {swapped("answer", "ans\x00er"), "is not a valid entry"},
		"garbage":            {"hello\nworld\n", "is not a valid entry"},
		"a bad line":         {file(append(append(append([]string{}, lines[:6]...), "{"), lines[6:]...)), "is not a valid entry"},
		"two in a line":      {swapped("\n{\"parentUuid\"", "{\"parentUuid\""), "is not a valid entry"},
		"an entry less":      {file(without(2)), "lacks 1 of the 9"},
		"the newest less":    {file(lines[:len(lines)-5]), "lacks 3 of the 9"},
		"an answer changed":  {swapped("answer & 1", "answer 7"), "differs from what the session's log recorded"},
		"a question changed": {swapped("question <1>", "question <2>"), "differs from what the session's log recorded"},
		"a parent changed":   {swapped(`"parentUuid":"user-1"`, `"parentUuid":"user-0"`), "differs from what the session's log recorded"},
		"another branch":     {file(append(append([]string{}, lines...), said("user", "x", "", "I am the root"))), "does not contain the end of the newest turn"},
		"branch from before": {file(append(append([]string{}, lines...), said("user", "x", "assistant-1", "rewound"))), "does not contain the end of the newest turn"},
		"a hole":             {file(append(append([]string{}, lines...), said("user", "x", "nobody", "hm"))), `lacks entry "nobody"`},
		"a circle":           {file(append(append([]string{}, lines...), said("user", "x", "y", "hm"), said("user", "y", "x", "hm"))), "circle"},
		"twice, other words": {file(append(append([]string{}, lines...), said("user", "user-0", "", "hm"))), "with different content"},
		"spelt otherwise":    {swapped(`"uuid":"user-0"`, `"UUID":"user-0"`), "lacks 1 of the 9"},
	} {
		err := verdict(r, transcript.Main, c.data, 1000)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	long := strings.Repeat("x", 17<<20)
	if err := verdict(r, transcript.Main, long, 1<<20); !holdfast.IsKind(err, holdfast.KindTooLarge) {
		t.Errorf("a long line: %.100v", err)
	}
}

func TestARecordKnowsWhatItMisses(t *testing.T) {
	if err := new(transcript.Record).Whole(); err == nil {
		t.Error("an empty record is whole")
	}
	lines := talk(3)
	late := record(t, lines[:8])
	late.Answered("assistant-1")
	if err := late.Whole(); err == nil || !strings.Contains(err.Error(), "newest answer") {
		t.Error(err)
	}
	if err := verdict(late, transcript.Main, file(lines[:8]), 100); err == nil {
		t.Error("a file passes without the answer that the newest turn completed with")
	}
	if err := verdict(late, transcript.Main, file(lines), 100); err != nil {
		t.Errorf("the file that has it: %v", err)
	}
	// Turn 1 lost its answer on the way; the next question goes on from it.
	lost := append(append([]string{}, lines[:8]...), lines[9:]...)
	r := record(t, lost)
	if err := r.Whole(); err == nil || !strings.Contains(err.Error(), `lacks entry "assistant-1"`) {
		t.Error(err)
	}
	if err := verdict(r, transcript.Main, file(lines), 100); err != nil {
		t.Errorf("the file that has what the log misses: %v", err)
	}
	r.Add(holdfast.AgentMirrored{Entries: []json.RawMessage{json.RawMessage(`[1]`)}})
	if err := r.Whole(); err == nil {
		t.Error("an entry that is none is whole")
	}
}

func TestWrittenAnewItPasses(t *testing.T) {
	lines := talk(4)
	child := []string{said("user", "c1", "", "find it"), said("assistant", "c2", "c1", "found")}
	const name = "subagents/agent-a72.jsonl"
	parts := []holdfast.AgentMirrored{
		mirrored(t, transcript.Main, lines[:6]...),
		mirrored(t, name, `{"type":"agent_metadata","agentType":"x"}`),
		mirrored(t, name, child...),
		mirrored(t, name, `{"type":"agent_metadata","agentType":"x","finished":true}`),
		mirrored(t, transcript.Main, lines[6:]...),
		mirrored(t, "../../etc/passwd", `{"uuid":"x"}`),
	}
	var r transcript.Record
	var w transcript.Writer
	for _, m := range parts {
		r.Add(m)
		if err := w.Add(m); err != nil {
			t.Fatal(err)
		}
	}
	r.Completed()
	files := w.Files()
	if len(files) != 3 || files[2].Name != transcript.Main {
		t.Fatalf("%d files", len(files))
	}
	for _, f := range files {
		if f.Name == "subagents/agent-a72.meta.json" {
			if string(f.Data) != `{"agentType":"x","finished":true}` {
				t.Errorf("%s", f.Data)
			}
			continue
		}
		if err := verdict(&r, f.Name, string(f.Data), 100); err != nil {
			t.Errorf("%q: %v", f.Name, err)
		}
	}
	if got := transcript.Path("/c/p", agentID, files[0].Name); !strings.HasPrefix(got, "/c/p/"+agentID+"/subagents/agent-a72.") {
		t.Error(got)
	}
	if n := bytes.Count(files[2].Data, []byte{'\n'}); n != len(lines) {
		t.Errorf("%d lines of %d", n, len(lines))
	}
}

// WS-R75, WS-R93, WS-P15.
func TestNames(t *testing.T) {
	for path, want := range map[string]string{
		"/home/agent/.claude/projects/-workspace/" + agentID + ".jsonl": "main",
		"/x/" + agentID + "/subagents/agent-a7277b1a4f4c70341.jsonl":    "subagents/agent-a7277b1a4f4c70341.jsonl",
		"/x/" + agentID + "/subagents/workflows/w-1/agent-a.jsonl":      "subagents/workflows/w-1/agent-a.jsonl",
		"/x/" + agentID + "/subagents/../../../../etc/passwd.jsonl":     "",
		"/x/" + agentID + "/subagents/a b.jsonl":                        "",
		"/x/" + agentID + "/subagents/.jsonl":                           "",
		"/x/" + agentID + "/tool-results/x.jsonl":                       "",
		"/x/other.jsonl": "",
		"":               "",
		"/x/" + agentID + "/subagents/" + strings.Repeat("a", 300) + ".jsonl": "",
	} {
		name, ok := transcript.Name(agentID, path)
		if ok && name == transcript.Main {
			name = "main"
		}
		if ok != (want != "") || ok && name != want {
			t.Errorf("%s: %q %v", path, name, ok)
		}
	}
}

// FuzzWhatPassesIsWhole: whatever stands in the file, if it passes then each line
// that was recorded is in it.
func FuzzWhatPassesIsWhole(f *testing.F) {
	lines := talk(3)
	whole := file(lines)
	for _, s := range []string{
		"", whole, whole[:len(whole)/2], whole + "\x00", whole + "{}\n", whole + said("user", "u", "assistant-2", "x") + "\n",
		strings.Replace(whole, "\n", "\r\n", 3), strings.Replace(whole, "assistant-1", "assistant-2", 1), "[]\n", "null\n", "{\n}\n",
		strings.Repeat("[", 20000) + "\n", "{}}\n", `{"uuid":1}` + "\n", `{"uuid":"a","uuid":"b"}` + "\n",
	} {
		f.Add(s, uint32(0), uint32(len(whole)), uint8(3))
		f.Add(s, uint32(len(whole)), uint32(0), uint8(200))
		f.Add(s, uint32(len(lines[0])+1), uint32(1), uint8(40))
	}
	f.Fuzz(func(t *testing.T, with string, at, cut uint32, piece uint8) {
		from := min(int(at), len(whole))
		data := whole[:from] + with + whole[min(from+int(cut), len(whole)):]
		r := record(t, lines)
		if verdict(r, transcript.Main, data, int(piece)) != nil {
			return
		}
		have := map[string]bool{}
		for l := range strings.Lines(data) {
			have[canon(t, l)] = true
		}
		for _, l := range lines {
			if strings.Contains(l, "uuid") && !have[canon(t, l)] {
				t.Fatalf("passed without %s", l)
			}
		}
	})
}

func canon(t *testing.T, line string) string {
	var v any
	if err := json.Unmarshal([]byte(line), &v); err != nil {
		t.Fatalf("passed with the line %q", line)
	}
	out, _ := json.Marshal(v)
	return string(out)
}

// TestDeepLinesAreNoEntries: lines too deep for encoding/json are refused.
func TestDeepLinesAreNoEntries(t *testing.T) {
	lines := talk(1)
	r := record(t, lines)
	for depth, want := range map[int]bool{9_000: true, 10_001: false, 5_000_000: false} {
		deep := `{"uuid":"deep","parentUuid":"assistant-0","type":"user","message":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + "}"
		if err := verdict(r, transcript.Main, file(append(lines, deep)), 1<<20); (err == nil) != want {
			t.Errorf("%d levels: %v", depth, err)
		}
	}
}

// FuzzNamesStayBelow: no name that the log keeps leads out of the agent's directory.
func FuzzNamesStayBelow(f *testing.F) {
	f.Add("/x/" + agentID + "/subagents/../../x.jsonl")
	f.Add("/x/" + agentID + "/subagents/a.jsonl")
	f.Fuzz(func(t *testing.T, file string) {
		name, ok := transcript.Name(agentID, file)
		if !ok {
			return
		}
		if p := transcript.Path("/dir", agentID, name); p != "/dir/"+agentID+".jsonl" && !strings.HasPrefix(p, "/dir/"+agentID+"/subagents/") {
			t.Fatalf("%q leads to %s", file, p)
		}
		var w transcript.Writer
		if err := w.Add(holdfast.AgentMirrored{File: name, Entries: []json.RawMessage{json.RawMessage(`{}`)}}); err != nil || len(w.Files()) != 1 {
			t.Fatalf("%q is not written: %v", name, err)
		}
	})
}
