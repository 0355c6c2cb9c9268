package acp

import (
	"encoding/json"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast/internal/shellword"
)

// pathField is the field of our file tools that holds the path.
var pathField = map[string]string{"Read": "file_path", "Write": "file_path", "Edit": "file_path", "Grep": "path", "Glob": "path", "LS": "path"}

// placed returns the inputs that are judged in place of the input of a call. A command that runs in another directory
// than the workspace is judged as one that goes there first, because its relative paths lead elsewhere.
func placed(name string, input json.RawMessage, workspace string) []json.RawMessage {
	var raw map[string]any
	if name != "Bash" || json.Unmarshal(input, &raw) != nil {
		return []json.RawMessage{input}
	}
	var here bool
	var out []json.RawMessage
	for _, field := range slices.Sorted(maps.Keys(raw)) {
		dir, isText := raw[field].(string)
		switch {
		case !namesDir.MatchString(field), raw[field] == nil, isText && dir == "":
			continue
		case isText && (dir == "." || strings.TrimRight(dir, "/") == workspace):
			here = true
			continue
		}
		moved := maps.Clone(raw)
		moved["command"] = true // no rule can read it, so every rule for commands applies
		if command, ok := raw["command"].(string); ok && isText {
			if !strings.HasPrefix(dir, "/") {
				dir = workspace + "/" + dir
			}
			moved["command"] = "cd " + shellword.Quote(dir) + " && " + command
		}
		in, _ := json.Marshal(moved)
		out = append(out, in)
	}
	if here || len(out) == 0 {
		out = append(out, input)
	}
	return out
}

// more returns inputs for the other files that a call of a file tool names, because path rules hold for each of them.
func (t *tool) more(name string, input json.RawMessage) []json.RawMessage {
	field := pathField[name]
	var raw map[string]any
	if field == "" || json.Unmarshal(input, &raw) != nil {
		return nil
	}
	first := raw[field]
	delete(raw, field)
	paths, all := t.paths(raw)
	var out []json.RawMessage
	for _, p := range paths {
		if p != first {
			in, _ := json.Marshal(map[string]string{field: p})
			out = append(out, in)
		}
	}
	if !all {
		// Some paths are not known. Judge the value true in place of a path: no rule can read it, so every rule for
		// paths applies to it.
		in, _ := json.Marshal(map[string]bool{field: true})
		out = append(out, in)
	}
	return out
}

// paths returns the paths that a call names, each once: those that the agent lists as the call's locations, and those
// in fields of the input whose name says that they hold one, such as paths, target_file, source and destination. all
// is false if the call names maxPaths or more of them, or one that was too long to keep: then list may lack some.
func (t *tool) paths(raw map[string]any) (list []string, all bool) {
	named := tool{Paths: slices.Clone(t.Paths), Lost: t.Lost}
	for _, name := range slices.Sorted(maps.Keys(raw)) {
		if !namesPath.MatchString(name) || namesText.MatchString(name) {
			continue
		}
		values, ok := raw[name].([]any)
		if !ok {
			values = []any{raw[name]}
		}
		for _, v := range values {
			p, _ := v.(string)
			named.path(p)
		}
	}
	return named.Paths, !named.Lost && len(named.Paths) < maxPaths
}

// namesPath matches the names of input fields that hold paths, if namesText does not match them; namesDir those of fields
// that hold the directory of a command.
var (
	namesPath = regexp.MustCompile(`(?i)path|file|dir|folder|root|source|src|dest|target|^(from|to|cwd)$`)
	namesText = regexp.MustCompile(`(?i)(text|contents?|string|type|mode)$`)
	namesDir  = regexp.MustCompile(`(?i)^(work(ing)?_?|current_?)?(dir(ectory)?|cwd)(_?path)?$`)
)
