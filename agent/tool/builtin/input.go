package builtin

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// input reads the fields of a tool's input one by one. It stores the first error, which done
// returns. A null field counts as absent. Field names are case-sensitive.
type input struct {
	fields map[string]json.RawMessage
	known  []string
	err    error
}

func newInput(raw json.RawMessage) *input {
	in := &input{}
	if err := json.Unmarshal(raw, &in.fields); err != nil || in.fields == nil {
		in.err = bad("the input is %s, not a JSON object", kindOf(raw))
	}
	return in
}

func bad(format string, args ...any) error {
	return holdfast.Errorf(holdfast.KindInvalid, "input", format, args...)
}

// done returns the first error in the input; an unknown field is an error too.
func (in *input) done() error {
	if in.err != nil {
		return in.err
	}
	names := make([]string, 0, len(in.fields))
	for name := range in.fields {
		if !slices.Contains(in.known, name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return bad("unknown input field %s; there are %s", holdfast.Quote(names[0]), strings.Join(in.known, ", "))
}

// field returns the value of a field; nil if the field is absent.
func (in *input) field(name string, required bool) json.RawMessage {
	in.known = append(in.known, name)
	raw, ok := in.fields[name]
	if !ok || kindOf(raw) == "null" {
		if required {
			in.fail("the input field %q is missing", name)
		}
		return nil
	}
	return raw
}

func (in *input) fail(format string, args ...any) {
	if in.err == nil {
		in.err = bad(format, args...)
	}
}

func (in *input) wrong(name, want string, raw json.RawMessage) {
	in.fail("the input field %q must be %s, not %s", name, want, kindOf(raw))
}

func (in *input) text(name string, required bool) string {
	raw := in.field(name, required)
	if raw == nil {
		return ""
	}
	var s string
	if kindOf(raw) != "a string" || json.Unmarshal(raw, &s) != nil {
		in.wrong(name, "a string", raw)
	}
	return s
}

// filled returns the value of a required string field that must not be empty.
func (in *input) filled(name string) string {
	s := in.text(name, true)
	if s == "" {
		in.fail("the input field %q is empty", name)
	}
	return s
}

func (in *input) flag(name string, def bool) bool {
	raw := in.field(name, false)
	if raw == nil {
		return def
	}
	var b bool
	if json.Unmarshal(raw, &b) != nil {
		in.wrong(name, "true or false", raw)
	}
	return b
}

// number returns the value of a field with a whole number from least to most; def if the field is
// absent. It accepts 3.0 as a whole number.
func (in *input) number(name string, def, least, most int64) int64 {
	raw := in.field(name, false)
	if raw == nil {
		return def
	}
	if kindOf(raw) != "a number" {
		in.wrong(name, "a whole number", raw)
		return def
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil {
		f, err := strconv.ParseFloat(string(raw), 64)
		if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
			in.fail("the input field %q must be a whole number, not %s", name, holdfast.Quote(string(raw)))
			return def
		}
		n = int64(f)
	}
	if n < least || n > most {
		in.fail("the input field %q must be from %d to %d, not %d", name, least, most, n)
	}
	return n
}

// choice returns the value of a field that must be one of the words; the first word if the field is absent or empty.
func (in *input) choice(name string, words ...string) string {
	s := in.text(name, false)
	if s == "" {
		return words[0]
	}
	if !slices.Contains(words, s) {
		in.fail("the input field %q must be one of %s, not %s", name, strings.Join(words, ", "), holdfast.Quote(s))
	}
	return s
}

// list returns the elements of a field with an array.
func (in *input) list(name string, required bool) []json.RawMessage {
	raw := in.field(name, required)
	if raw == nil {
		return nil
	}
	var out []json.RawMessage
	if json.Unmarshal(raw, &out) != nil {
		in.wrong(name, "an array", raw)
	}
	return out
}

// kindOf returns the name of a JSON value's type.
func kindOf(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return "nothing"
	}
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "a string"
	case 't', 'f':
		return "a boolean"
	case 'n':
		return "null"
	}
	return "a number"
}

// texts returns the value of an optional field with an array of strings.
func (in *input) texts(name string) []string {
	var out []string
	for i, raw := range in.list(name, false) {
		var s string
		if kindOf(raw) != "a string" || json.Unmarshal(raw, &s) != nil {
			in.fail("the input field %q must hold strings, its entry %d is %s", name, i, kindOf(raw))
		}
		out = append(out, s)
	}
	return out
}
