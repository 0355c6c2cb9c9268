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

	"github.com/holdfast-run/holdfast/internal/clip"
)

// Keys parses the keys and values of a YAML text, as settings.Keys does. Values are nil, string,
// bool, json.Number, []any, or of another type that this package does not use.
type Keys func(data []byte) (map[string]any, error)

// maxFront is the longest frontmatter, maxLabel the longest text in it, in bytes.
const maxFront, maxLabel = 16 << 10, 2000

// front is a parsed text with frontmatter. Only the keys that were asked for are passed on; finish stores the names of
// the others in dropped.
type front struct {
	keys map[string]any
	body string
	// shell is true if the body contained commands for Claude Code to run.
	shell   bool
	asked   []string
	dropped []string
	err     error
}

// parseFront parses a Markdown file. If its first line is not "---", it has no frontmatter.
// Frontmatter that has no end, is too long or cannot be parsed is an error, as is a text that is not UTF-8.
func parseFront(data []byte, read Keys) (*front, error) {
	if !utf8.Valid(data) || bytes.IndexByte(data, 0) >= 0 {
		return nil, errors.New("the file is not UTF-8 text without NUL")
	}
	text := strings.ReplaceAll(strings.TrimPrefix(string(data), "\ufeff"), "\r\n", "\n")
	m := &front{keys: map[string]any{}, body: text}
	if first, rest, _ := strings.Cut(text, "\n"); strings.TrimRight(first, " \t") == "---" {
		head, body, ok := cutFront(rest)
		if !ok {
			return nil, errors.New(`the frontmatter of the file has no line "---" at its end`)
		}
		if len(head) > maxFront {
			return nil, fmt.Errorf("the file's frontmatter is longer than %d bytes", maxFront)
		}
		keys, err := read([]byte(head))
		if err != nil {
			return nil, fmt.Errorf("the file's frontmatter cannot be read: %w", err)
		}
		m.keys, m.body = keys, body
	}
	m.body = strings.TrimLeft(m.body, "\n")
	if m.body, m.shell = unmark(m.body); shellMark.MatchString(m.body) {
		return nil, errors.New("the file contains too many marks of commands (!`command`)")
	}
	return m, nil
}

// shellMark matches the marks of commands that Claude Code would run itself when it reads the
// text: !`command`, and a block that begins with ```!.
var shellMark = regexp.MustCompile("!+`|```!+")

// unmark removes the exclamation marks that shellMark matches, and reports whether there were any. Removing one may
// produce another match, which is removed too; parseFront rejects a text that still has one after eight rounds.
func unmark(text string) (string, bool) {
	had := shellMark.MatchString(text)
	for range 8 {
		text = shellMark.ReplaceAllStringFunc(text, func(mark string) string { return strings.ReplaceAll(mark, "!", "") })
	}
	return text, had
}

// cutFront splits the text at the first line "---".
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
		m.err = fmt.Errorf("the frontmatter key %s is not %s", key, want)
	}
}

// text returns a key's text in one line. For argument-hint also a list is accepted, as in argument-hint: [name].
func (m *front) text(key string) string {
	switch v := m.get(key).(type) {
	case nil:
		return ""
	case string:
		return label(v)
	case bool, json.Number:
		return fmt.Sprint(v)
	case []any:
		if key == "argument-hint" {
			return label(strings.Trim(fmt.Sprint(v), " "))
		}
	}
	m.fail(key, "text")
	return ""
}

// yes returns the truth value of a key; without is the value if the key is missing.
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

// list returns a key's list of names, which may be a text with commas; nil if the key is missing.
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

// silent marks keys that are ignored on purpose as asked for, so that they cause no notice.
func (m *front) silent(keys ...string) { m.asked = append(m.asked, keys...) }

// unread removes the mark that a key was asked for, so that the key causes a notice that it is left out.
func (m *front) unread(key string) {
	m.asked = slices.DeleteFunc(m.asked, func(k string) bool { return k == key })
}

// finish collects the keys that were not asked for.
func (m *front) finish() *front {
	for key := range m.keys {
		if !slices.Contains(m.asked, key) {
			m.dropped = append(m.dropped, label(key))
		}
	}
	return m
}

// label turns a text into one line of limited length that cannot end a frontmatter.
func label(s string) string {
	s = strings.Join(strings.FieldsFunc(s, func(c rune) bool { return unicode.IsControl(c) || unicode.IsSpace(c) }), " ")
	s = clip.Dots(s, maxLabel)
	for strings.Contains(s, "---") {
		s = strings.ReplaceAll(s, "---", "--")
	}
	return s
}

func firstLine(body string) string {
	for line := range strings.Lines(body) {
		if line = strings.TrimSpace(strings.TrimLeft(line, "# ")); line != "" {
			return label(line)
		}
	}
	return ""
}

// compose writes a text with generated frontmatter in which every text is quoted. So it does not
// matter how another YAML parser would read the original.
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
			if err != nil { // cannot fail: every text can be written as JSON
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
