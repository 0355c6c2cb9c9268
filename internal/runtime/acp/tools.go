package acp

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/jsonrpc"
	"github.com/holdfast-run/holdfast/internal/shellword"
)

// tool is a tool call of the current prompt.
type tool struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	// First is the call's first title; many agents put the tool's name there.
	First string          `json:"first,omitempty"`
	Kind  string          `json:"kind,omitempty"`
	Raw   json.RawMessage `json:"raw,omitempty"`
	Paths []string        `json:"paths,omitempty"`
	Old   *string         `json:"old,omitempty"`
	New   *string         `json:"new,omitempty"`

	// Listed is true once an answer in the log contains the call, Told once the log has its tool.requested
	// event; from then on the ledger has the state of the call.
	Listed bool `json:"listed,omitempty"`
	Told   bool `json:"told,omitempty"`
	// Input is the call's input with the changes in later messages about the call, nil if it is as recorded.
	Input json.RawMessage `json:"input,omitempty"`
	// Diff is the digest of the newest change of a file that is part of the input.
	Diff string `json:"diff,omitempty"`
	// Judged is the digest of all inputs that the newest decision has allowed, empty if none has.
	Judged string `json:"judged,omitempty"`
	// Cut is true if a part of the input was too long to keep, Lost if a path was, and Long if the first title was.
	Cut  bool `json:"cut,omitempty"`
	Lost bool `json:"lost,omitempty"`
	Long bool `json:"long,omitempty"`

	// Ask is the id of the open permission request for the call. Yes and No are the options that allow and deny it.
	Ask jsonrpc.ID `json:"ask,omitzero"`
	Yes string     `json:"yes,omitempty"`
	No  string     `json:"no,omitempty"`

	// shown is the part of the call's output that was already sent to live readers.
	shown string
}

const (
	// mostInput is the most bytes of a call's input that are judged. A call with a longer one is denied.
	mostInput = 8 << 20
	// mostName is the most bytes of a call's name, kind and title that are kept.
	mostName = 4096
)

// learn adds the fields of an update; fields that the update lacks stay unchanged.
func (t *tool) learn(c toolCall) {
	set := func(to *string, v string) {
		if v != "" {
			*to = clip.Counted(v, mostName)
		}
	}
	if name := c.Name; name != "" || c.Meta.Claude.ToolName != "" {
		set(&t.Name, c.Meta.Claude.ToolName)
		set(&t.Name, name)
	}
	if t.First == "" {
		set(&t.First, c.Title)
		t.Long = len(c.Title) > mostName
	}
	if !t.Told && (c.Kind != "other" || t.Kind == "") {
		set(&t.Kind, c.Kind) // the kind other says less than another kind; once the log has the call, its kind stays
	}
	if full(c.RawInput) {
		// A permission request may have fewer fields than an earlier update.
		raw := merge(t.Raw, c.RawInput)
		if t.Cut = t.Cut || len(raw) > mostInput; !t.Cut {
			t.Raw = raw
		}
	}
	for _, l := range c.Locations {
		t.path(l.Path)
	}
	for _, b := range blocksOf(c.Content) {
		if b.Type == "diff" {
			t.path(b.Path)
			size := len(b.NewText)
			if b.OldText != nil {
				size += len(*b.OldText)
			}
			if t.Cut = t.Cut || size > mostInput; !t.Cut {
				t.Old, t.New = b.OldText, &b.NewText
			}
		}
	}
}

// maxPath is the most bytes of a path of a call that is kept, maxPaths the most paths of a call that are kept, and
// keptPaths the most bytes of all these paths together.
const maxPath, maxPaths, keptPaths = 4096, 100, 64 << 10

// path adds a path to those of the call. It sets Lost if the path is not kept.
func (t *tool) path(p string) {
	if p == "" || slices.Contains(t.Paths, p) {
		return
	}
	size := len(p)
	for _, o := range t.Paths {
		size += len(o)
	}
	if len(p) > maxPath || len(t.Paths) >= maxPaths || size > keptPaths {
		t.Lost = true
		return
	}
	t.Paths = append(t.Paths, p)
}

// size is the number of bytes of the call that are kept until the log has them.
func (t *tool) size() int {
	n := len(t.Raw) + len(t.Input)
	for _, s := range []*string{t.Old, t.New} {
		if s != nil {
			n += len(*s)
		}
	}
	return n
}

// whole reports whether input, the input of the call, has everything that the agent sent, so that it can be judged.
func (t *tool) whole(name string, input json.RawMessage) bool {
	var in struct {
		Command string `json:"command"`
	}
	titled := name == "Bash" && t.Long && json.Unmarshal(input, &in) == nil && in.Command == t.First
	return !t.Cut && !titled && len(input) <= mostInput
}

// full reports whether an input is an object with fields.
func full(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 2 && raw[0] == '{'
}

// merge returns the JSON object in under, with the fields of the object in over added or replaced. If over is not an
// object, merge returns under; if only under is not an object, it returns over.
func merge(under, over json.RawMessage) json.RawMessage {
	var a, b map[string]json.RawMessage
	if json.Unmarshal(over, &b) != nil {
		return under
	}
	if json.Unmarshal(under, &a) != nil || a == nil {
		return over
	}
	for k, v := range b {
		a[k] = v
	}
	out, err := json.Marshal(a)
	if err != nil {
		return over
	}
	return out
}

// ours maps the kind of a tool and the agent's name for it to the tool's name in permission rules. A title counts as a
// name only together with the right kind, and never for the kind execute: the title of a command may be the command.
var ours = map[string]map[string]string{
	"execute": {"task": "Task"},
	"read": {
		"read": "Read", "read_file": "Read", "list": "LS", "ls": "LS", "list_directory": "LS", "glob": "Glob",
		"read_many_files": "Read",
	},
	"edit": {
		"write": "Write", "write_file": "Write", "edit": "Edit", "multiedit": "Edit", "replace": "Edit", "patch": "Edit", "apply_patch": "Edit",
		"notebookedit": "Edit",
	},
	"search": {
		"grep": "Grep", "search_file_content": "Grep", "grep_search": "Grep", "glob": "Glob", "find": "Glob", "list": "LS", "ls": "LS",
		"list_directory": "LS", "websearch": "WebSearch", "google_web_search": "WebSearch",
	},
	"fetch": {"webfetch": "WebFetch", "web_fetch": "WebFetch", "websearch": "WebSearch", "google_web_search": "WebSearch"},
	"think": {"task": "Task", "agent": "Task", "todowrite": "TodoWrite", "write_todos": "TodoWrite"},
	"other": {"todowrite": "TodoWrite", "todoread": "TodoWrite", "task": "Task", "websearch": "WebSearch", "webfetch": "WebFetch"},
}

// byKind is the tool for a kind if the agent's name for it is unknown.
var byKind = map[string]string{
	"execute": "Bash", "read": "Read", "edit": "Edit", "delete": "Edit", "move": "Edit", "search": "Grep", "fetch": "WebFetch",
}

// named returns the tool's name in permission rules. A tool whose name and kind are both unknown gets the name of an
// MCP tool of the agent: mcp__AGENT__NAME.
func (t *tool) named(agent string) string {
	kind := t.Kind
	if kind == "" {
		kind = "other"
	}
	if strings.HasPrefix(t.Name, "mcp__") {
		return clip.Counted(t.Name, 128)
	}
	if n := ours[kind][strings.ToLower(t.Name)]; n != "" {
		return n
	}
	if n := ours[kind][strings.ToLower(t.First)]; n != "" && kind != "execute" {
		return n
	}
	if n := byKind[kind]; n != "" {
		if n == "Edit" && kind == "edit" && t.New != nil && (t.Old == nil || *t.Old == "") {
			return "Write"
		}
		return n
	}
	name := t.Name
	if name == "" {
		name = t.First
	}
	return "mcp__" + agent + "__" + plain(name)
}

// another returns the name of the tool that a permission request for the recorded call names, if it is not the recorded
// one, name; "" if it names the recorded one, or none.
func (t *tool) another(call toolCall, name, agent string) string {
	o := tool{Kind: cmp.Or(call.Kind, t.Kind)}
	o.learn(toolCall{Name: call.Name, Meta: call.Meta})
	if o.Name == "" && (byKind[call.Kind] == "" || call.Kind == t.Kind) {
		return ""
	}
	known := ours[o.Kind][strings.ToLower(o.Name)] != "" || strings.HasPrefix(o.Name, "mcp__")
	if !known && (byKind[o.Kind] == name || slices.Contains(slices.Collect(maps.Values(ours[o.Kind])), name)) {
		return "" // a kind alone stands for each tool of that kind
	}
	if n := o.named(agent); n != name {
		return n
	}
	return ""
}

// plain converts name so that a rule can contain it: any character but letters, digits, _ and -
// becomes _.
func plain(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-') {
			return r
		}
		return '_'
	}, clip.Counted(name, 64))
	if name == "" {
		return "tool"
	}
	return name
}

// spellings are the names that agents use for each of our input fields.
var spellings = map[string][]string{
	"file_path":  {"file_path", "filePath", "filepath", "absolute_path", "abs_path", "notebook_path", "path"},
	"command":    {"command", "cmd", "script"},
	"pattern":    {"pattern", "query", "regex"},
	"url":        {"url", "uri"},
	"content":    {"content", "contents", "text"},
	"old_string": {"old_string", "oldString", "old_text"},
	"new_string": {"new_string", "newString", "new_text"},
	"query":      {"query", "search_query"},
	"path":       {"path", "dir_path", "directory"},
}

// fields are the input fields that rules examine, by tool.
var fields = map[string][]string{
	"Bash": {"command"}, "Read": {"file_path"}, "Write": {"file_path", "content"}, "Edit": {"file_path", "old_string", "new_string"},
	"Grep": {"pattern", "path"}, "Glob": {"pattern", "path"}, "LS": {"path"}, "WebFetch": {"url"}, "WebSearch": {"query"},
}

// input returns the call's input with our field names. Other fields keep the agent's names. before is the input that is
// recorded already, or nil: its fields stay, except those that later messages about the call changed.
func (t *tool) input(name string, before json.RawMessage) json.RawMessage {
	var old map[string]any
	raw := t.renamed(name)
	if json.Unmarshal(before, &old) == nil {
		for k, v := range old {
			if _, set := raw[k]; !set {
				raw[k] = v
			}
		}
	}
	t.fill(name, raw, before != nil)
	// raw was decoded from JSON, so it can be encoded
	out, _ := json.Marshal(raw)
	return out
}

// renamed decodes the agent's input and gives its fields our names.
func (t *tool) renamed(name string) map[string]any {
	var raw map[string]any
	if json.Unmarshal(t.Raw, &raw) != nil || raw == nil {
		raw = map[string]any{}
	}
	for _, field := range fields[name] {
		for _, s := range spellings[field] {
			v, ok := raw[s]
			if !ok {
				continue
			}
			if list, isList := v.([]any); isList && field == "command" {
				v = joined(list)
			}
			delete(raw, s)
			if _, twice := raw[field]; !twice {
				raw[field] = v
			}
			break
		}
	}
	return raw
}

// fill adds fields that the input lacks from other parts of the call: its paths, its title, and the difference of a
// file that it shows. If the call was recorded before, a difference that is new since then replaces the one in the
// input.
func (t *tool) fill(name string, raw map[string]any, recorded bool) {
	set := func(field string, v any) {
		if s, ok := raw[field].(string); !ok || s == "" {
			raw[field] = v
		}
	}
	switch name {
	case "Read", "Write", "Edit", "LS":
		if paths, _ := t.paths(raw); len(paths) > 0 {
			set(pathField[name], paths[0])
		}
	case "Bash":
		set("command", t.First)
	}
	if t.New == nil {
		return
	}
	parts := []json.RawMessage{json.RawMessage(*t.New)}
	if t.Old != nil {
		parts = append(parts, json.RawMessage(*t.Old))
	}
	sum := digest(parts)
	if recorded && t.Diff != sum {
		set = func(field string, v any) { raw[field] = v }
	}
	t.Diff = sum
	switch name {
	case "Write":
		set("content", *t.New)
	case "Edit":
		set("new_string", *t.New)
		if t.Old != nil {
			set("old_string", *t.Old)
		}
	}
}

// digest returns the SHA-256, in hexadecimal, of texts and of their lengths: where a text ends changes the digest.
func digest(texts []json.RawMessage) string {
	h := sha256.New()
	for _, text := range texts {
		fmt.Fprintf(h, "%d:", len(text))
		h.Write(text)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// joined returns a command line for a command that came as a list of words.
func joined(list []any) string {
	var words []string
	for _, v := range list {
		s, ok := v.(string)
		if !ok {
			continue
		}
		words = append(words, shellword.Quote(s))
	}
	return strings.Join(words, " ")
}

// outcomeBytes is the most bytes of a tool's outcome that are recorded.
const outcomeBytes = 64 << 10

// said returns a tool's outcome as text.
func said(c toolCall) string {
	var text string
	if json.Unmarshal(c.RawOutput, &text) == nil && text != "" {
		return clip.Counted(text, outcomeBytes)
	}
	var out struct {
		Output string `json:"output"`
		Error  string `json:"error"`
		Stdout string `json:"stdout"`
	}
	if json.Unmarshal(c.RawOutput, &out) == nil && out.Output+out.Error+out.Stdout != "" {
		return clip.Counted(out.Output+out.Stdout+out.Error, outcomeBytes)
	}
	return clip.Counted(shownText(c), outcomeBytes)
}

// shownText returns the text of a tool call's content.
func shownText(c toolCall) string {
	var parts []string
	for _, b := range blocksOf(c.Content) {
		switch {
		case b.Text != "":
			parts = append(parts, b.Text)
		case b.Type == "diff":
			parts = append(parts, "changed "+b.Path)
		}
	}
	return strings.Join(parts, "\n")
}
