package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// object is a map that keeps the order of its keys. Values are object, []any, string, bool,
// json.Number or nil.
type object []field

type field struct {
	key   string
	value any
}

// MarshalJSON implements json.Marshaler.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := json.Marshal(f.key)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(f.value)
		if err != nil {
			return nil, err
		}
		b.Write(key)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// maxDepth is the largest nesting depth of lists and maps.
const maxDepth = 64

// jsonTree parses one JSON value; a duplicate key is an error.
func jsonTree(data []byte) (any, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("the text is not UTF-8")
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil
	}
	// Decoding by tokens alone would accept some invalid JSON.
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		return nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	return jsonValue(dec, 0)
}

func jsonValue(dec *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("the text is nested more than %d levels deep", maxDepth)
	}
	tok, err := dec.Token()
	if err != nil {
		return nil, err
	}
	delim, ok := tok.(json.Delim)
	if !ok {
		return tok, nil
	}
	var out any
	if delim == '[' {
		list := []any{}
		for dec.More() {
			v, err := jsonValue(dec, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		out = list
	} else {
		obj, seen := object{}, map[string]bool{}
		for dec.More() {
			key, err := dec.Token()
			if err != nil {
				return nil, err
			}
			name, _ := key.(string)
			if seen[name] {
				return nil, fmt.Errorf("the key %q occurs twice", name)
			}
			seen[name] = true
			v, err := jsonValue(dec, depth+1)
			if err != nil {
				return nil, err
			}
			obj = append(obj, field{name, v})
		}
		out = obj
	}
	_, err = dec.Token()
	return out, err
}

// maxFlow is how many of the characters []{},&*? a YAML text may have: for them the parser may take
// more than proportional time.
const maxFlow = 2000

// yamlTree parses one YAML document without anchors and tags.
func yamlTree(data []byte) (v any, err error) {
	// The YAML parser is third-party code and the text may come from an agent: treat a panic as
	// invalid YAML.
	defer func() {
		if p := recover(); p != nil {
			v, err = nil, fmt.Errorf("the text is not YAML: %v", p)
		}
	}()
	switch {
	case !utf8.Valid(data):
		return nil, errors.New("the text is not UTF-8")
	case len(bytes.TrimSpace(data)) == 0:
		return nil, nil
	}
	flow := 0
	for line := range bytes.Lines(data) {
		for _, c := range line {
			if strings.IndexByte("[]{},&*?", c) >= 0 {
				flow++
			}
		}
		if bytes.Count(line, []byte("- ")) > maxDepth {
			return nil, fmt.Errorf("the text is nested more than %d levels deep", maxDepth)
		}
	}
	if flow > maxFlow {
		return nil, fmt.Errorf("the text contains more than %d brackets, braces, commas and characters & * ?", maxFlow)
	}
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, errors.New(yaml.FormatError(err, false, false))
	}
	if len(file.Docs) > 1 {
		return nil, errors.New("the text contains more than one YAML document")
	}
	var plain plainOnly
	for _, doc := range file.Docs {
		ast.Walk(&plain, doc)
	}
	if plain.found != "" {
		return nil, fmt.Errorf("the text contains %s, which is YAML that is not supported", plain.found)
	}
	var doc any
	err = yaml.NewDecoder(bytes.NewReader(data), yaml.Strict(), yaml.UseOrderedMap()).Decode(&doc)
	if errors.Is(err, io.EOF) { // the text has only comments
		return nil, nil
	}
	if err != nil {
		return nil, errors.New(yaml.FormatError(err, false, false))
	}
	return yamlValue(doc, 0)
}

// plainOnly finds YAML features other than keys and values: anchors, aliases and tags.
type plainOnly struct{ found string }

// Visit implements ast.Visitor.
func (p *plainOnly) Visit(n ast.Node) ast.Visitor {
	switch n.(type) {
	case *ast.AnchorNode, *ast.AliasNode, *ast.MergeKeyNode:
		p.found = "an anchor or alias"
	case *ast.TagNode:
		p.found = "a tag"
	}
	return p
}

func yamlValue(v any, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("the text is nested more than %d levels deep", maxDepth)
	}
	switch v := v.(type) {
	case yaml.MapSlice:
		out := object{}
		for _, item := range v {
			key, ok := item.Key.(string)
			if !ok {
				return nil, fmt.Errorf("the key %v is not text", item.Key)
			}
			value, err := yamlValue(item.Value, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, field{key, value})
		}
		return out, nil
	case []any:
		out := make([]any, len(v))
		for i := range v {
			var err error
			if out[i], err = yamlValue(v[i], depth+1); err != nil {
				return nil, err
			}
		}
		return out, nil
	case nil, string, bool:
		return v, nil
	case int64, uint64, float64:
		return json.Number(fmt.Sprint(v)), nil
	}
	return nil, fmt.Errorf("%v is neither text, number, list nor map", v)
}

// Keys parses the keys and values of a YAML text, such as the frontmatter of a Markdown file: one
// document without anchors and tags. Values are nil, string, bool, json.Number, []any, or a map of
// a private type.
func Keys(data []byte) (map[string]any, error) {
	if len(data) > MaxOwn {
		return nil, fmt.Errorf("the frontmatter is larger than %d bytes", MaxOwn)
	}
	tree, err := yamlTree(data)
	if err != nil {
		return nil, err
	}
	root, ok := tree.(object)
	if !ok && tree != nil {
		return nil, errors.New("the YAML text is not a map of keys and values")
	}
	out := make(map[string]any, len(root))
	for _, f := range root {
		out[f.key] = f.value
	}
	return out, nil
}
