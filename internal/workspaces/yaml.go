package workspaces

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
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

// knownKeys are the keys that config.yaml may have. oldTrust is the former name of the key default_trust_level.
var knownKeys = []string{"title", "dir", "default_trust_level", "model", "runtime", "network", "mount", "env", "limits", "permissions"}

const oldTrust = "trust_level"

// render returns the text of config.yaml for the settings of a workspace.
func render(s holdfast.Workspace) []byte {
	var body []byte
	for _, kv := range [][2]string{{"title", s.Title}, {"dir", s.Dir}, {"default_trust_level", string(s.DefaultTrust)}, {"model", s.Model}, {"runtime", s.Runtime}, {"mount", s.Mount}} {
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
	if len(s.Env) > 0 {
		body = append(body, "env:\n"...)
		for _, name := range slices.Sorted(maps.Keys(s.Env)) {
			body = fmt.Appendf(body, "  %s: %s\n", scalar(name), scalar(shown))
		}
	}
	if len(s.Limits) > 0 {
		body = append(body, "limits:\n"...)
		for _, key := range slices.Sorted(maps.Keys(s.Limits)) {
			value := s.Limits[key]
			if !amount.MatchString(value) {
				value = scalar(value)
			}
			body = fmt.Appendf(body, "  %s: %s\n", key, value)
		}
	}
	if len(s.Permissions) > 0 {
		body = append(body, "permissions:\n"...)
		for _, key := range slices.Sorted(maps.Keys(s.Permissions)) {
			body = fmt.Appendf(body, "  %s:\n", key)
			for _, rule := range s.Permissions[key] {
				body = fmt.Appendf(body, "  - %s\n", scalar(rule))
			}
		}
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

// amount matches texts that are a number with an optional unit, such as 2 or 1.5GiB.
var amount = regexp.MustCompile(`^[1-9][0-9]*(\.[0-9]+)?[A-Za-z]*$`)

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

func sameSettings(a, b Record) bool {
	return a.Title == b.Title && a.DefaultTrust == b.DefaultTrust && a.Model == b.Model && a.Runtime == b.Runtime && a.Mount == b.Mount &&
		slices.Equal(a.Network, b.Network) && (a.Network == nil) == (b.Network == nil) &&
		!a.Reseal && maps.Equal(a.Limits, b.Limits) && maps.EqualFunc(a.Permissions, b.Permissions, slices.Equal)
}

// parse returns a workspace with the settings of its config.yaml. Errors name file, line, column and key. The caller holds
// the root key.
func (c Config) parse(r Record, data []byte) (Record, error) {
	p := configParser{name: filepath.Join(c.dir(r.ID), configName)}
	entries, err := p.entries(data)
	if err != nil {
		return r, err
	}
	next := r
	next.Title, next.DefaultTrust, next.Model, next.Runtime, next.Mount, next.Network, next.Limits, next.Permissions = "", "", "", "", "", nil, nil, nil
	env := map[string]string{}
	_, hasNew := entries["default_trust_level"]
	for _, key := range append([]string{oldTrust}, knownKeys...) {
		e, ok := entries[key]
		if !ok || key == oldTrust && hasNew {
			continue
		}
		set := c.set
		if key == "env" {
			set = func(r *Record, _ string, e entry) error { return c.readEnv(r, e, env) }
		}
		if err := set(&next, key, e); err != nil {
			at := e.at
			var in *inside
			if errors.As(err, &in) {
				at, key, err = in.at, key+"."+in.key, in.err
			}
			return r, p.bad(at, key, "%w", err)
		}
	}
	if err := c.setEnv(&next, env); err != nil {
		return r, p.bad(entries["env"].at, "env", "%w", err)
	}
	if err := c.checkMount(&r.Workspace, &next.Workspace); err != nil {
		return r, p.bad(entries["mount"].at, "mount", "%w", err)
	}
	return next, nil
}

// readEnv reads the environment of config.yaml into env. Its errors contain no value.
func (c Config) readEnv(r *Record, e entry, env map[string]string) error {
	return e.each(nil, func(name string, e entry) error {
		if e.text == nil {
			return errors.New("the value is not a text: put it in quotes")
		}
		env[name] = *e.text
		if _, has := r.Env[name]; !has && *e.text == shown {
			return fmt.Errorf("%s stands for a variable's stored value, but none is stored: write the value", shown)
		}
		if *e.text == shown {
			return nil
		}
		return c.CheckEnv(map[string]string{name: *e.text})
	})
}

// set stores the value of one key of config.yaml in r.
func (c Config) set(r *Record, key string, e entry) error {
	switch key {
	case "network":
		if e.list == nil {
			return errors.New("the value is not a list of destinations")
		}
		r.Network = e.list
		return c.check(&holdfast.Workspace{Network: e.list})
	case "limits":
		return e.each(c.LimitKeys, func(key string, e entry) error { return c.setLimit(r, key, e) })
	case "permissions":
		return e.each(behaviors[:], func(key string, e entry) error { return c.setRules(r, key, e) })
	}
	if e.text == nil {
		return errors.New("the value is not a text: put it in quotes")
	}
	text := *e.text
	switch key {
	case "dir":
		if text != r.Dir {
			return fmt.Errorf("the directory of the workspace cannot be changed to %s: it is %s", holdfast.Quote(text), holdfast.Quote(r.Dir))
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
	case "mount":
		return apply(&r.Workspace, holdfast.WorkspaceSettings{Mount: &text})
	default: // the keys default_trust_level and trust_level
		return apply(&r.Workspace, holdfast.WorkspaceSettings{DefaultTrust: &text})
	}
	return nil
}

// setLimit stores the value of one key of the map limits in r.
func (c Config) setLimit(r *Record, key string, e entry) error {
	text := cmp.Or(e.text, e.number)
	if text == nil {
		return errors.New("the value is neither a number nor a text")
	}
	set, err := c.CheckLimits(map[string]string{key: *text})
	r.Limits = merged(r.Limits, set, func(v string) bool { return v == "" })
	return err
}

// setRules stores the rules under one key of the map permissions in r.
func (c Config) setRules(r *Record, key string, e entry) error {
	if e.list == nil {
		return errors.New("the value is not a list of rules")
	}
	set := map[string][]string{key: e.list}
	r.Permissions = merged(r.Permissions, set, func(rules []string) bool { return len(rules) == 0 })
	return c.checkRules(&holdfast.Workspace{Permissions: set})
}

// entry is the value of a key in config.yaml: a text, a number, a list of texts, or a map. The others are nil; all are
// nil if the value is none of these.
type entry struct {
	key, at      *token.Position
	text, number *string
	list         []string
	keys         map[string]entry
}

// inside is an error of one key in a map within config.yaml, with its position.
type inside struct {
	at  *token.Position
	key string
	err error
}

func (i *inside) Error() string { return i.key + ": " + i.err.Error() }

// each calls set for each key of a map, in alphabetical order. Unless known is nil, it refuses keys not in known.
func (e entry) each(known []string, set func(key string, e entry) error) error {
	if e.keys == nil {
		return errors.New("the value is not a map of keys and values")
	}
	for _, key := range slices.Sorted(maps.Keys(e.keys)) {
		v := e.keys[key]
		if known != nil && !slices.Contains(known, key) {
			return &inside{v.key, key, fmt.Errorf("the key is not known: use %s", strings.Join(known, ", "))}
		}
		if err := set(key, v); err != nil {
			return &inside{v.at, key, err}
		}
	}
	return nil
}

// maxFlow is how many characters that flow counts (brackets, braces, commas, dashes) a config.yaml may have: the YAML
// parser's time grows faster than their number.
const maxFlow = 2000

// configParser reads a config.yaml; name is the file's name in errors.
type configParser struct{ name string }

// bad returns the error for a mistake in config.yaml; it names the file, the line and column (if at is not nil) and
// the key.
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
				args[i] = errors.New(own.Msg) // only the message, without the operation: it is quoted within a sentence
			}
		}
	}
	return holdfast.Errorf(holdfast.KindInvalid, "workspace.config", "%s: "+format, append([]any{where}, args...)...).
		WithHint("%s", cmp.Or(hint, "the file may have the keys "+strings.Join(knownKeys, ", ")+"; remove the file, and the server writes it again"))
}

// entries returns the values of a YAML document by their keys.
func (p configParser) entries(data []byte) (out map[string]entry, err error) {
	defer func() {
		if r := recover(); r != nil { // the YAML parser is third-party code, which may panic
			out, err = nil, p.bad(nil, "", "it is not YAML: %v", r)
		}
	}()
	if !utf8.Valid(data) {
		return nil, p.bad(nil, "", "it is not UTF-8")
	}
	if flow(data) > maxFlow {
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
	var body ast.Node
	if len(doc.Docs) == 1 {
		body = doc.Docs[0].Body
	}
	switch body.(type) {
	case nil, *ast.CommentGroupNode:
	case *ast.MappingNode, *ast.MappingValueNode:
		if out, err = p.keys("", body); err != nil {
			return nil, err
		}
	default:
		return nil, p.bad(body.GetToken().Position, "", "it is not a map of keys and values")
	}
	for _, name := range slices.Sorted(maps.Keys(out)) {
		if name != oldTrust && !slices.Contains(knownKeys, name) {
			return nil, p.bad(out[name].key, holdfast.Quote(name), "the key is not known")
		}
	}
	if len(out) == 0 {
		// An interrupted editor may leave an empty file, which must not remove all settings.
		return nil, p.bad(nil, "", "it has no keys")
	}
	return out, nil
}

// keys returns the values of a map by their keys. in is the key of the map, empty for the whole file.
func (p configParser) keys(in string, n ast.Node) (map[string]entry, error) {
	var values []*ast.MappingValueNode
	switch n := n.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	}
	out := map[string]entry{}
	for _, v := range values {
		name, ok := textOf(v.Key)
		if !ok {
			return nil, p.bad(v.Key.GetToken().Position, holdfast.Quote(v.Key.String()), "the key is not known")
		}
		path := name
		if in != "" {
			path = in + "." + name
		}
		e, err := p.value(path, v.Value, in == "")
		if err != nil {
			return nil, err
		}
		if e.key = v.Key.GetToken().Position; e.at == nil {
			e.at = e.key
		}
		out[name] = e
	}
	return out, nil
}

// value returns the value of a key, which may be a map if nested is true.
func (p configParser) value(key string, n ast.Node, nested bool) (e entry, err error) {
	if n.GetToken() != nil {
		e.at = n.GetToken().Position
	}
	if text, ok := textOf(n); ok {
		e.text = &text
		return e, nil
	}
	switch n := n.(type) {
	case *ast.IntegerNode, *ast.FloatNode:
		number := n.GetToken().Value
		e.number = &number
	case *ast.SequenceNode:
		e.list = []string{}
		for _, item := range n.Values {
			text, ok := textOf(item)
			if !ok {
				return e, p.bad(item.GetToken().Position, key, "the list has an entry that is not a text: put it in quotes")
			}
			e.list = append(e.list, text)
		}
	case *ast.MappingNode, *ast.MappingValueNode:
		if nested {
			e.keys, err = p.keys(key, n)
		}
	}
	return e, err
}

// flow returns how many characters have a meaning in YAML that may cost the parser time.
func flow(data []byte) (n int) {
	for _, c := range data {
		if strings.IndexByte("[]{},&*?-", c) >= 0 {
			n++
		}
	}
	return n
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
