package folder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Keys reads the keys and values of a YAML text, as settings.Keys does. Values are nil,
// string, bool, json.Number, []any, or something else that nobody reads.
type Keys func(data []byte) (map[string]any, error)

// maxFront bounds the frontmatter, maxLabel a text of it, in bytes.
const maxFront, maxLabel = 16 << 10, 2000

// front is a text with frontmatter: the keys that somebody asked for count, finish
// collects the others.
type front struct {
	keys map[string]any
	body string
	// shell: the body had commands for Claude Code to run.
	shell   bool
	asked   []string
	dropped []string
	err     error
}

// parseFront reads a Markdown file. Without "---" in its first line it has no frontmatter;
// frontmatter without an end, or that cannot be read, is an error.
func parseFront(data []byte, read Keys) (*front, error) {
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return nil, errors.New("it is not UTF-8 text")
	}
	text := strings.ReplaceAll(strings.TrimPrefix(string(data), "\ufeff"), "\r\n", "\n")
	m := &front{keys: map[string]any{}, body: text}
	if first, rest, _ := strings.Cut(text, "\n"); strings.TrimRight(first, " \t") == "---" {
		head, body, ok := cutFront(rest)
		if !ok {
			return nil, errors.New(`its frontmatter has no end: a line "---"`)
		}
		if len(head) > maxFront {
			return nil, fmt.Errorf("its frontmatter is over %d bytes", maxFront)
		}
		keys, err := read([]byte(head))
		if err != nil {
			return nil, fmt.Errorf("its frontmatter cannot be read: %w", err)
		}
		m.keys, m.body = keys, body
	}
	m.body = strings.TrimLeft(m.body, "\n")
	if m.body, m.shell = unmark(m.body); shellMark.MatchString(m.body) {
		return nil, errors.New("it holds too many marks of commands")
	}
	return m, nil
}

// shellMark marks commands that Claude Code would run by itself when it reads the text:
// !`command`, and a block that begins with ```!.
var shellMark = regexp.MustCompile("!+`|```!+")

// unmark takes the marks away and reports whether there were any. One that goes may leave
// another, which goes as well; a text that has one after that is odd.
func unmark(text string) (string, bool) {
	had := shellMark.MatchString(text)
	for range 8 {
		text = shellMark.ReplaceAllStringFunc(text, func(mark string) string { return strings.ReplaceAll(mark, "!", "") })
	}
	return text, had
}

// cutFront cuts at the first line "---".
func cutFront(text string) (head, body string, ok bool) {
	at := 0
	for line := range strings.Lines(text) {
		if strings.TrimRight(line, " \t\n") == "---" {
			return text[:at], text[at+len(line):], true
		}
		at += len(line)
	}
	return "", "", false
}

func (m *front) get(key string) any {
	m.asked = append(m.asked, key)
	return m.keys[key]
}

func (m *front) fail(key, want string) {
	if m.err == nil {
		m.err = fmt.Errorf("%s is not %s", key, want)
	}
}

// text is a key's text in one line; a list is joined, as argument-hint: [name] is one.
func (m *front) text(key string) string {
	switch v := m.get(key).(type) {
	case nil:
		return ""
	case string:
		return clip(v)
	case bool, json.Number:
		return fmt.Sprint(v)
	case []any:
		if key == "argument-hint" {
			return clip(strings.Trim(fmt.Sprint(v), " "))
		}
	}
	m.fail(key, "text")
	return ""
}

// yes is a key's truth value.
func (m *front) yes(key string, without bool) bool {
	switch v := m.get(key).(type) {
	case nil:
		return without
	case bool:
		return v
	}
	m.fail(key, "true or false")
	return without
}

// list is a key's list of names, or a text with commas; nil if the key is not there.
func (m *front) list(key string) []string {
	out := []string{}
	switch v := m.get(key).(type) {
	case nil:
		return nil
	case string:
		for name := range strings.SplitSeq(v, ",") {
			out = append(out, strings.TrimSpace(name))
		}
	case []any:
		for _, x := range v {
			name, ok := x.(string)
			if !ok {
				m.fail(key, "a list of names")
			}
			out = append(out, strings.TrimSpace(name))
		}
	default:
		m.fail(key, "a list of names")
	}
	return slices.DeleteFunc(out, func(s string) bool { return s == "" })
}

// silent are keys that mean nothing here and need no notice.
func (m *front) silent(keys ...string) { m.asked = append(m.asked, keys...) }

// unread takes back that a key was asked for.
func (m *front) unread(key string) {
	m.asked = slices.DeleteFunc(m.asked, func(k string) bool { return k == key })
}

// finish collects the keys that nobody asked for.
func (m *front) finish() *front {
	for key := range m.keys {
		if !slices.Contains(m.asked, key) {
			m.dropped = append(m.dropped, clip(key))
		}
	}
	return m
}

// clip makes a text one line of bounded length, in which no frontmatter can end.
func clip(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(c rune) bool { return unicode.IsControl(c) || unicode.IsSpace(c) }), " ")
	if len(s) > maxLabel {
		s = strings.ToValidUTF8(s[:maxLabel], "") + "…"
	}
	for strings.Contains(s, "---") {
		s = strings.ReplaceAll(s, "---", "--")
	}
	return s
}

func firstLine(body string) string {
	for line := range strings.Lines(body) {
		if line = strings.TrimSpace(strings.TrimLeft(line, "# ")); line != "" {
			return clip(line)
		}
	}
	return ""
}

// compose writes a text with frontmatter of our own, in which every text is quoted: what
// another reader of YAML would see in the original does not matter.
func compose(keys []string, body string) []byte {
	var b bytes.Buffer
	b.WriteString("---\n")
	for i := 0; i+1 < len(keys); i += 2 {
		key, value := keys[i], keys[i+1]
		if value == "" {
			continue
		}
		if value != "true" && value != "false" {
			quoted, err := json.Marshal(value)
			if err != nil { // text is always JSON
				continue
			}
			value = string(quoted)
		}
		fmt.Fprintf(&b, "%s: %s\n", key, value)
	}
	b.WriteString("---\n")
	b.WriteString(body)
	return b.Bytes()
}
