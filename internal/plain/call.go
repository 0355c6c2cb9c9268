package plain

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
)

// Call renders a tool call for people: the action on the first line, a multi-line command or a change
// below it. It shows all of the input, with invisible characters spelled out. The input of a tool that
// Call does not know, and one without the tool's usual fields, is shown as JSON.
func Call(name string, input json.RawMessage) []Line {
	in, ok := fields(input)
	if !ok {
		return []Line{{Text: OneLine(name) + " " + Compact(input)}}
	}
	var head string
	var below []Line
	switch name {
	case "Bash":
		cmd := in.take("command")
		if strings.Contains(cmd, "\n") {
			below = textLines(Context, cmd)
		} else {
			head = OneLine(cmd)
		}
	case "Read":
		head = OneLine(in.take("file_path"))
	case "Write":
		head = OneLine(in.take("file_path"))
		below = textLines(Added, in.take("content"))
	case "Edit":
		head = OneLine(in.take("file_path"))
		below = change(in.take("old_string"), in.take("new_string"))
	case "Glob", "Grep":
		head = OneLine(in.take("pattern"))
	default:
		return []Line{{Text: OneLine(name) + " " + Compact(input)}}
	}
	if in.bad {
		return []Line{{Text: OneLine(name) + " " + Compact(input)}}
	}
	words := slices.DeleteFunc([]string{OneLine(name), head, in.rest()}, func(s string) bool { return s == "" })
	return append([]Line{{Text: strings.Join(words, " ")}}, below...)
}

// inputFields are the fields of a tool's input, in order, without those that were taken.
type inputFields struct {
	names  []string
	values map[string]json.RawMessage
	// bad is true if a field passed to take was missing or not a string.
	bad bool
}

// fields returns the fields of a JSON object; false if input is not an object or has a name twice.
func fields(input json.RawMessage) (*inputFields, bool) {
	dec := json.NewDecoder(bytes.NewReader(input))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, false
	}
	f := &inputFields{values: map[string]json.RawMessage{}}
	for dec.More() {
		t, err := dec.Token()
		name, ok := t.(string)
		var v json.RawMessage
		if err != nil || !ok || dec.Decode(&v) != nil {
			return nil, false
		}
		if _, twice := f.values[name]; twice {
			return nil, false
		}
		f.names = append(f.names, name)
		f.values[name] = v
	}
	if _, err := dec.Token(); err != nil || dec.More() {
		return nil, false
	}
	return f, true
}

// take removes the string field name and returns its text.
func (f *inputFields) take(name string) (s string) {
	if err := json.Unmarshal(f.values[name], &s); err != nil {
		f.bad = true
	}
	delete(f.values, name)
	f.names = slices.DeleteFunc(f.names, func(n string) bool { return n == name })
	return s
}

// rest returns the fields that were not taken as JSON; empty if all were taken.
func (f *inputFields) rest() string {
	if len(f.names) == 0 {
		return ""
	}
	var b bytes.Buffer
	for i, name := range f.names {
		key, _ := json.Marshal(name) // encoding a string never fails
		b.WriteByte("{,"[min(i, 1)])
		b.Write(key)
		b.WriteByte(':')
		b.Write(f.values[name])
	}
	b.WriteByte('}')
	return Compact(b.Bytes())
}

// textLines returns the lines of a text as Lines of one kind.
func textLines(kind Kind, s string) (out []Line) {
	if s == "" {
		return nil
	}
	for l := range strings.Lines(s) {
		out = append(out, Line{kind, OneLine(strings.TrimSuffix(l, "\n"))})
	}
	return out
}

// piece is a line of a text that change compares, and the line as it is shown.
type piece struct{ line, shown string }

// pieces returns the lines of a text without their breaks. With marked, a break at the end of the text
// belongs to the last line, and is shown as \n.
func pieces(s string, marked bool) (out []piece) {
	for l := range strings.Lines(s) {
		l = strings.TrimSuffix(l, "\n")
		out = append(out, piece{l, OneLine(l)})
	}
	if n := len(out); marked && strings.HasSuffix(s, "\n") {
		out[n-1].line += "\n"
		out[n-1].shown += `\n`
	}
	return out
}

// change returns the lines that turn one text into another. Of the lines that both begin or end with,
// only the one next to the difference is included. If only one of the texts ends with a line break, the
// break is spelled out: without it, the text joins the line that follows in the file.
func change(from, to string) []Line {
	marked := strings.HasSuffix(from, "\n") != strings.HasSuffix(to, "\n")
	a, b := pieces(from, marked), pieces(to, marked)
	front := 0
	for front < min(len(a), len(b)) && a[front].line == b[front].line {
		front++
	}
	back := 0
	for back < min(len(a), len(b))-front && a[len(a)-1-back].line == b[len(b)-1-back].line {
		back++
	}
	var out []Line
	if front > 0 {
		out = append(out, Line{Context, a[front-1].shown})
	}
	out = append(out, between(a[front:len(a)-back], b[front:len(b)-back])...)
	if back > 0 {
		out = append(out, Line{Context, a[len(a)-back].shown})
	}
	return out
}

// maxTable is the largest table that between computes, in cells: for two texts of a thousand lines.
const maxTable = 1 << 20

// between returns a line-by-line difference: lines that both have in the same order are context. For
// long texts it shows all lines of a as removed and all of b as added.
func between(a, b []piece) (out []Line) {
	add := func(kind Kind, lines ...piece) {
		for _, l := range lines {
			out = append(out, Line{kind, l.shown})
		}
	}
	if len(a)*len(b) > maxTable {
		add(Removed, a...)
		add(Added, b...)
		return out
	}
	// common[i][j] is how many lines a[i:] and b[j:] have in common, in the same order.
	common := make([][]uint16, len(a)+1)
	for i := range common {
		common[i] = make([]uint16, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i].line == b[j].line {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		switch {
		case a[i].line == b[j].line:
			add(Context, a[i])
			i, j = i+1, j+1
		case common[i+1][j] >= common[i][j+1]:
			add(Removed, a[i])
			i++
		default:
			add(Added, b[j])
			j++
		}
	}
	add(Removed, a[i:]...)
	add(Added, b[j:]...)
	return out
}
