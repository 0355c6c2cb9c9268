package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
)

// How much of a tool call is shown where nobody decides on it: lines of a change, and of
// what a command printed.
const (
	shownChange = 12
	shownOutput = 6
)

// callLine is a line of a tool call as people read it. Mark is '+' or '-' for a line of a
// change, ' ' for one of a command or around a change, 0 for the others.
type callLine struct {
	mark byte
	text string
}

// callLines are a tool call as people read it: what is done on the first line, a command
// or a change below. All of the input is there, and all of it can be seen. An input that
// is not of the tool's usual shape is shown as the JSON that it is.
func callLines(name string, input json.RawMessage) []callLine {
	in, ok := fields(input)
	if !ok {
		return []callLine{{text: line(name) + " " + compact(input)}}
	}
	var head string
	var below []callLine
	switch name {
	case "Bash":
		cmd := in.take("command")
		if strings.Contains(cmd, "\n") {
			below = textLines(' ', cmd)
		} else {
			head = line(cmd)
		}
	case "Read":
		head = line(in.take("file_path"))
	case "Write":
		head = line(in.take("file_path"))
		below = textLines('+', in.take("content"))
	case "Edit":
		head = line(in.take("file_path"))
		below = change(in.take("old_string"), in.take("new_string"))
	case "Glob", "Grep":
		head = line(in.take("pattern"))
	default:
		return []callLine{{text: line(name) + " " + compact(input)}}
	}
	if in.bad {
		return []callLine{{text: line(name) + " " + compact(input)}}
	}
	words := slices.DeleteFunc([]string{line(name), head, in.rest()}, func(s string) bool { return s == "" })
	return append([]callLine{{text: strings.Join(words, " ")}}, below...)
}

// inputFields are the fields of an object, in order.
type inputFields struct {
	names  []string
	values map[string]json.RawMessage
	// bad: a field that was taken is missing or no text.
	bad bool
}

// fields are those of an object that names each once.
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

// take removes a text and returns it.
func (f *inputFields) take(name string) (s string) {
	if err := json.Unmarshal(f.values[name], &s); err != nil {
		f.bad = true
	}
	delete(f.values, name)
	f.names = slices.DeleteFunc(f.names, func(n string) bool { return n == name })
	return s
}

// rest is what was not taken, as JSON; empty if that is nothing.
func (f *inputFields) rest() string {
	if len(f.names) == 0 {
		return ""
	}
	var b bytes.Buffer
	for i, name := range f.names {
		key, _ := json.Marshal(name) // a string always encodes
		b.WriteByte("{,"[min(i, 1)])
		b.Write(key)
		b.WriteByte(':')
		b.Write(f.values[name])
	}
	b.WriteByte('}')
	return compact(b.Bytes())
}

// textLines are the lines of a text, each with a mark.
func textLines(mark byte, s string) (out []callLine) {
	if s == "" {
		return nil
	}
	for l := range strings.Lines(s) {
		out = append(out, callLine{mark, line(strings.TrimSuffix(l, "\n"))})
	}
	return out
}

// change is a text and what takes its place: what both begin and end with is left out,
// but for one line around the difference.
func change(from, to string) []callLine {
	a, b := textLines('-', from), textLines('+', to)
	same := func(i, j int) bool { return a[i].text == b[j].text }
	front := 0
	for front < min(len(a), len(b)) && same(front, front) {
		front++
	}
	back := 0
	for back < min(len(a), len(b))-front && same(len(a)-1-back, len(b)-1-back) {
		back++
	}
	var out []callLine
	if front > 0 {
		out = append(out, callLine{' ', a[front-1].text})
	}
	out = append(out, a[front:len(a)-back]...)
	out = append(out, b[front:len(b)-back]...)
	if back > 0 {
		out = append(out, callLine{' ', a[len(a)-back].text})
	}
	return out
}

// callLine shows a line, those of a change in their colours.
func (e *env) callLine(l callLine) {
	colour, before := dim, "  "
	switch l.mark {
	case '+':
		colour, before = green, "    + "
	case '-':
		colour, before = red, "    - "
	case ' ':
		before = "      "
	}
	fmt.Fprintf(e.stderr, "%s%s%s%s\n", e.style(colour), before, l.text, e.style(reset))
}

// requested shows a call that a model asked for.
func (v *turnView) requested(d holdfast.ToolRequested) error {
	if v.tools == nil {
		v.tools = map[string]string{}
	}
	v.tools[d.ToolUseID] = d.Name
	all := callLines(d.Name, d.Input)
	v.breakLine()
	v.e.note("→ %s", cut(all[0].text, 200))
	below := all[1:]
	for _, l := range below[:min(len(below), shownChange)] {
		v.e.callLine(callLine{l.mark, cut(l.text, 200)})
	}
	if more := len(below) - shownChange; more > 0 {
		v.e.callLine(callLine{' ', "… " + count(more, "more line", "more lines")})
	}
	return nil
}

// finished shows how a call ended: what a command printed last, or why a tool failed.
func (v *turnView) finished(d holdfast.ToolFinished) error {
	name := v.tools[d.ToolUseID]
	outcome := string(d.Outcome)
	if d.ExitCode != nil && *d.ExitCode != 0 {
		outcome = fmt.Sprintf("%s %d", outcome, *d.ExitCode)
	}
	v.breakLine()
	v.e.note("← %s %s, %s", cut(line(cmp.Or(name, "a tool")), 100), outcome, lasted(d.DurationMS))
	// What readers of files return is long and known.
	quiet := d.Outcome == holdfast.ExitOK && slices.Contains([]string{"Read", "Write", "Edit", "Glob", "Grep", "TodoWrite"}, name)
	if quiet || strings.TrimSpace(d.Content) == "" {
		return nil
	}
	out := slices.Collect(strings.Lines(strings.TrimRight(d.Content, "\n")))
	if name != "Bash" && d.IsError {
		out = out[:1]
	}
	if more := len(out) - shownOutput; more > 0 {
		v.e.callLine(callLine{' ', "… " + count(more, "line before", "lines before")})
		out = out[more:]
	}
	for _, l := range out {
		v.e.callLine(callLine{' ', cut(line(strings.TrimSuffix(l, "\n")), 200)})
	}
	return nil
}

// lasted is a duration as people read it.
func lasted(ms float64) string {
	d := time.Duration(ms * float64(time.Millisecond))
	switch {
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", ms)
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}
