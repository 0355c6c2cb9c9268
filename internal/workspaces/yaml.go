package workspaces

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/holdfast-run/holdfast"
)

// knownKeys are the keys that config.yaml may have. oldTrust is what default_trust_level was once called.
var knownKeys = []string{"title", "dir", "default_trust_level", "model", "runtime", "network"}

const oldTrust = "trust_level"

// render returns the config.yaml of a workspace.
func render(s holdfast.Workspace) []byte {
	var body []byte
	for _, kv := range [][2]string{{"title", s.Title}, {"dir", s.Dir}, {"default_trust_level", string(s.DefaultTrust)}, {"model", s.Model}, {"runtime", s.Runtime}} {
		if kv[1] != "" {
			body = fmt.Appendf(body, "%s: %s\n", kv[0], scalar(kv[1]))
		}
	}
	switch {
	case len(s.Network) > 0:
		body = append(body, "network:\n"...)
		for _, d := range s.Network {
			body = fmt.Appendf(body, "- %s\n", scalar(d))
		}
	case s.Network != nil:
		body = append(body, "network: []\n"...)
	}
	if len(body) == 0 {
		body = []byte("title: \"\"\n")
	}
	head := "# Workspace " + string(s.ID) + ". The server imports changes of this file and then writes it again, without their comments.\n" +
		"# Keys: " + strings.Join(knownKeys, ", ") + ". dir cannot be changed.\n"
	return fmt.Appendf(nil, "%s"+exportLine+"%s", head, s.Revision, sum([]byte(head), body), body)
}

// plain matches texts that YAML reads as texts without quotes.
var plain = regexp.MustCompile(`^[/a-zA-Z][a-zA-Z0-9_./-]*( [a-zA-Z0-9_./-]+)*$`)

// scalar returns a text as YAML.
func scalar(s string) string {
	switch strings.ToLower(s) {
	case "true", "false", "yes", "no", "on", "off", "y", "n", "null":
	default:
		if plain.MatchString(s) {
			return s
		}
	}
	out := []byte{'"'}
	for _, c := range s {
		switch {
		case c == '"' || c == '\\':
			out = append(out, '\\', byte(c))
		case c < ' ' || c >= 0x7f && c < 0xa0 || !unicode.IsGraphic(c) && c <= 0xffff:
			out = fmt.Appendf(out, `\u%04x`, c)
		default:
			out = utf8.AppendRune(out, c)
		}
	}
	return string(append(out, '"'))
}

// exportLine names the revision that was exported, and the checksum of the other lines.
const exportLine = "# exported: revision %d, checksum %s\n"

func sum(parts ...[]byte) string {
	h := sha256.Sum256(bytes.Join(parts, nil))
	return fmt.Sprintf("%x", h[:8])
}

// exported returns the revision that a config.yaml was written for, 0 if it does not say, and whether somebody changed
// it since.
func exported(data []byte) (revision int64, edited bool) {
	start := 0
	for line := range bytes.Lines(data) {
		var check string
		if !bytes.HasPrefix(line, []byte("# exported: ")) {
			start += len(line)
			continue
		}
		if n, _ := fmt.Sscanf(string(line), exportLine, &revision, &check); n == 2 && revision > 0 {
			return revision, check != sum(data[:start], data[start+len(line):])
		}
		start += len(line)
	}
	return 0, true
}

func sameSettings(a, b holdfast.Workspace) bool {
	return a.Title == b.Title && a.DefaultTrust == b.DefaultTrust && a.Model == b.Model && a.Runtime == b.Runtime &&
		slices.Equal(a.Network, b.Network) && (a.Network == nil) == (b.Network == nil)
}

// parse returns a workspace with the settings of its config.yaml. Errors name file, line, column and key.
func (c Config) parse(r Record, data []byte) (Record, error) {
	p := configParser{name: filepath.Join(c.dir(r.ID), configName)}
	entries, err := p.entries(data)
	if err != nil {
		return r, err
	}
	next := r
	next.Title, next.DefaultTrust, next.Model, next.Runtime, next.Network = "", "", "", "", nil
	_, hasNew := entries["default_trust_level"]
	for _, key := range append([]string{oldTrust}, knownKeys...) {
		e, ok := entries[key]
		if !ok || key == oldTrust && hasNew {
			continue
		}
		if err := c.set(&next, key, e); err != nil {
			return r, p.bad(e.at, key, "%w", err)
		}
	}
	return next, nil
}

// set sets one key of config.yaml.
func (c Config) set(r *Record, key string, e entry) error {
	if key == "network" {
		if e.list == nil {
			return errors.New("the value is no list of destinations")
		}
		r.Network = e.list
		return c.check(&holdfast.Workspace{Network: e.list})
	}
	if e.text == nil {
		return errors.New("the value is no text: put it in quotes")
	}
	text := *e.text
	switch key {
	case "dir":
		if text != r.Dir {
			return fmt.Errorf("%s is not the directory of the workspace, which cannot be changed: %s", holdfast.Quote(text), holdfast.Quote(r.Dir))
		}
	case "title":
		r.Title = text
		return c.check(&holdfast.Workspace{Title: text})
	case "model":
		r.Model = text
		return c.check(&holdfast.Workspace{Model: text})
	case "runtime":
		r.Runtime = text
		return c.check(&holdfast.Workspace{Runtime: text, DefaultTrust: r.DefaultTrust})
	default: // default_trust_level, trust_level
		return apply(&r.Workspace, holdfast.WorkspaceSettings{DefaultTrust: &text})
	}
	return nil
}

// entry is the value of a key: a text, or a list of texts, or neither if both are nil.
type entry struct {
	at   *token.Position
	text *string
	list []string
}

// maxFlow is the largest number of characters for which the YAML parser takes more than proportional time.
const maxFlow = 2000

// configParser reads the file name.
type configParser struct{ name string }

// bad returns the error for a place in the file.
func (p configParser) bad(at *token.Position, key, format string, args ...any) *holdfast.Error {
	where := p.name
	if at != nil {
		where = fmt.Sprintf("%s:%d:%d", p.name, at.Line, at.Column)
	}
	if key != "" {
		where += ": " + key
	}
	hint := ""
	for i, a := range args {
		if err, ok := a.(error); ok {
			hint = holdfast.HintOf(err)
			if own, ok := errors.AsType[*holdfast.Error](err); ok {
				args[i] = errors.New(own.Msg) // without its operation, in the middle of a sentence
			}
		}
	}
	return holdfast.Errorf(holdfast.KindInvalid, "workspace.config", "%s: "+format, append([]any{where}, args...)...).
		WithHint("%s", cmp.Or(hint, "the keys are "+strings.Join(knownKeys, ", ")+"; remove the file, and the server writes it again"))
}

// entries returns the values of a YAML document by their keys.
func (p configParser) entries(data []byte) (out map[string]entry, err error) {
	defer func() {
		if r := recover(); r != nil { // the YAML parser is third-party code
			out, err = nil, p.bad(nil, "", "it is not YAML: %v", r)
		}
	}()
	if !utf8.Valid(data) {
		return nil, p.bad(nil, "", "it is not UTF-8")
	}
	flow := 0
	for _, c := range data {
		if strings.IndexByte("[]{},&*?-", c) >= 0 {
			flow++
		}
	}
	if flow > maxFlow {
		return nil, p.bad(nil, "", "it contains more than %d brackets, braces, commas and dashes", maxFlow)
	}
	doc, err := parser.ParseBytes(data, 0)
	if err != nil {
		var y yaml.Error
		if errors.As(err, &y) && y.GetToken() != nil {
			return nil, p.bad(y.GetToken().Position, "", "%s", y.GetMessage())
		}
		return nil, p.bad(nil, "", "%s", yaml.FormatError(err, false, false))
	}
	if len(doc.Docs) > 1 {
		return nil, p.bad(nil, "", "it contains more than one YAML document")
	}
	var values []*ast.MappingValueNode
	if len(doc.Docs) == 1 {
		switch body := doc.Docs[0].Body.(type) {
		case nil, *ast.CommentGroupNode:
		case *ast.MappingNode:
			values = body.Values
		case *ast.MappingValueNode:
			values = []*ast.MappingValueNode{body}
		default:
			return nil, p.bad(body.GetToken().Position, "", "it is no map of keys and values")
		}
	}
	out = map[string]entry{}
	for _, v := range values {
		name, ok := textOf(v.Key)
		if !ok || name != oldTrust && !slices.Contains(knownKeys, name) {
			return nil, p.bad(v.Key.GetToken().Position, holdfast.Quote(v.Key.String()), "the key is not known")
		}
		e := entry{at: v.Key.GetToken().Position}
		if v.Value.GetToken() != nil {
			e.at = v.Value.GetToken().Position
		}
		if text, ok := textOf(v.Value); ok {
			e.text = &text
		} else if seq, ok := v.Value.(*ast.SequenceNode); ok {
			e.list = []string{}
			for _, item := range seq.Values {
				text, ok := textOf(item)
				if !ok {
					return nil, p.bad(item.GetToken().Position, name, "the list holds something that is no text: put it in quotes")
				}
				e.list = append(e.list, text)
			}
		}
		out[name] = e
	}
	if len(out) == 0 {
		// An editor that was interrupted leaves such a file. It must not take all settings away.
		return nil, p.bad(nil, "", "it has no keys")
	}
	return out, nil
}

// textOf returns the text of a node; false if it is something else.
func textOf(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	}
	return "", false
}
