package acp

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast/internal/runtime/resident"
)

// tool is a tool call of the running prompt.
type tool struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"`
	// First is the title that it came with; many agents put their tool's name there.
	First string          `json:"first,omitempty"`
	Kind  string          `json:"kind,omitempty"`
	Raw   json.RawMessage `json:"raw,omitempty"`
	Paths []string        `json:"paths,omitempty"`
	Old   *string         `json:"old,omitempty"`
	New   *string         `json:"new,omitempty"`

	// Listed: an answer in the log has it. Told: its request is in the log; from then on
	// the ledger knows how far it has come.
	Listed bool `json:"listed,omitempty"`
	Told   bool `json:"told,omitempty"`
	// Input is what a further question asks for, where that is not what was requested.
	Input json.RawMessage `json:"input,omitempty"`

	// Ask is the id of the permission request that waits, Yes and No its options.
	Ask json.RawMessage `json:"ask,omitempty"`
	Yes string          `json:"yes,omitempty"`
	No  string          `json:"no,omitempty"`

	// shown is what of its output live readers saw.
	shown string
}

// keptInput bounds what is kept of a call's input until it is in the log.
const keptInput = 64 << 10

// learn takes in an update. Fields that it leaves out stay as they were.
func (t *tool) learn(c toolCall) {
	set := func(to *string, v string) {
		if v != "" {
			*to = resident.Clip(v, 4096)
		}
	}
	if name := c.Name; name != "" || c.Meta.Claude.ToolName != "" {
		set(&t.Name, c.Meta.Claude.ToolName)
		set(&t.Name, name)
	}
	if t.First == "" {
		set(&t.First, c.Title)
	}
	set(&t.Kind, c.Kind)
	if full(c.RawInput) && (len(c.RawInput) <= keptInput) {
		// A permission request may hold less than an update did.
		t.Raw = merge(t.Raw, c.RawInput)
	}
	for _, l := range c.Locations {
		t.path(l.Path)
	}
	for _, b := range blocksOf(c.Content) {
		if b.Type == "diff" {
			t.path(b.Path)
			if len(b.NewText) <= keptInput && (b.OldText == nil || len(*b.OldText) <= keptInput) {
				t.Old, t.New = b.OldText, &b.NewText
			}
		}
	}
}

func (t *tool) path(p string) {
	if p != "" && len(p) <= 4096 && len(t.Paths) < 100 && !slices.Contains(t.Paths, p) {
		t.Paths = append(t.Paths, p)
	}
}

// full reports that an input says something.
func full(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 2 && raw[0] == '{'
}

// merge lays the fields of one object over those of another.
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
	if err != nil || len(out) > keptInput {
		return over
	}
	return out
}

// ours are our names for what agents call their tools, by what they are good for. A
// title counts only where it goes with the kind: the title of a command is the
// command.
var ours = map[string]map[string]string{
	"execute": {"bash": "Bash", "shell": "Bash", "terminal": "Bash", "run_shell_command": "Bash", "task": "Task"},
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

// byKind is the tool of a kind that nothing more is known of.
var byKind = map[string]string{
	"execute": "Bash", "read": "Read", "edit": "Edit", "delete": "Edit", "move": "Edit", "search": "Grep", "fetch": "WebFetch",
}

// named is the tool's name in our set; one that is not in it is named as an MCP
// tool of the agent.
func (t *tool) named(agent string) string {
	kind := t.Kind
	if kind == "" {
		kind = "other"
	}
	if strings.HasPrefix(t.Name, "mcp__") {
		return resident.Clip(t.Name, 128)
	}
	for _, name := range []string{t.Name, t.First} {
		if n := ours[kind][strings.ToLower(name)]; n != "" {
			return n
		}
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

// plain turns name into one that a rule can name: any character but letters, digits, _ and -
// becomes _.
func plain(name string) string {
	name = strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_' || r == '-') {
			return r
		}
		return '_'
	}, resident.Clip(name, 64))
	if name == "" {
		return "tool"
	}
	return name
}

// spellings are the names that agents give to fields of ours.
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

// fields are those that rules look at, by tool.
var fields = map[string][]string{
	"Bash": {"command"}, "Read": {"file_path"}, "Write": {"file_path", "content"}, "Edit": {"file_path", "old_string", "new_string"},
	"Grep": {"pattern", "path"}, "Glob": {"pattern", "path"}, "LS": {"path"}, "WebFetch": {"url"}, "WebSearch": {"query"},
}

// input is the call's input as our tools spell it. Fields without a counterpart stay
// as the agent named them.
func (t *tool) input(name string) json.RawMessage {
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
	set := func(field string, v any) {
		if s, ok := raw[field].(string); !ok || s == "" {
			raw[field] = v
		}
	}
	switch name {
	case "Read", "Write", "Edit":
		if len(t.Paths) > 0 {
			set("file_path", t.Paths[0])
		}
	case "LS":
		if len(t.Paths) > 0 {
			set("path", t.Paths[0])
		}
	case "Bash":
		set("command", t.First)
	}
	if t.New != nil {
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
	// It was decoded from JSON.
	out, _ := json.Marshal(raw)
	return out
}

// joined is a command that came as a list.
func joined(list []any) string {
	var words []string
	for _, v := range list {
		s, ok := v.(string)
		if !ok {
			continue
		}
		if strings.ContainsAny(s, " \t\n'\"\\$`;&|<>()*?#~") || s == "" {
			s = "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
		}
		words = append(words, s)
	}
	return strings.Join(words, " ")
}

// more are inputs for the other files that an edit touches: rules for paths hold for
// each of them.
func (t *tool) more(name string, input json.RawMessage) []json.RawMessage {
	if name != "Read" && name != "Write" && name != "Edit" {
		return nil
	}
	var first struct {
		Path string `json:"file_path"`
	}
	_ = json.Unmarshal(input, &first)
	var out []json.RawMessage
	for _, p := range t.Paths {
		if p != first.Path {
			raw, _ := json.Marshal(map[string]string{"file_path": p})
			out = append(out, raw)
		}
	}
	return out
}

// outcomeBytes bounds what is kept of a tool's answer.
const outcomeBytes = 64 << 10

// said is what a tool answered, as text.
func said(c toolCall) string {
	var text string
	if json.Unmarshal(c.RawOutput, &text) == nil && text != "" {
		return resident.Clip(text, outcomeBytes)
	}
	var out struct {
		Output string `json:"output"`
		Error  string `json:"error"`
		Stdout string `json:"stdout"`
	}
	if json.Unmarshal(c.RawOutput, &out) == nil && out.Output+out.Error+out.Stdout != "" {
		return resident.Clip(out.Output+out.Stdout+out.Error, outcomeBytes)
	}
	return resident.Clip(shownText(c), outcomeBytes)
}

// shownText is the text of a tool call's content.
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
