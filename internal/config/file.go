package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/holdfast-run/holdfast"
)

// maxFile is the largest configuration file, in bytes, far above any real one.
const maxFile = 1 << 20

// readFile returns the settings in the YAML file with that name; if the name is empty, no settings.
func readFile(name string) (layer, error) {
	if name == "" {
		return layer{}, nil
	}
	data, err := readAll(name)
	if err != nil {
		return layer{}, err
	}
	doc, err := parseYAML(data)
	if err != nil {
		return layer{}, holdfast.Errorf(holdfast.KindInvalid, "config", "the file %s is not a configuration: %w", holdfast.Quote(name), err).
			WithHint("docs/config.md shows every key")
	}
	place := func(key string) string { return " in " + name + lineOf(data, key) }
	l := layer{values: map[string]any{}, yaml: true, from: name, origin: func(key string) string { return key + place(key) }}
	return l, flatten(l.values, "", doc, place)
}

func readAll(name string) ([]byte, error) {
	f, err := os.Open(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, holdfast.Errorf(holdfast.KindNotFound, "config", "there is no configuration file %s", holdfast.Quote(name)).
			WithHint("check --config, or leave it out to run with the defaults")
	case err != nil:
		return nil, holdfast.Errorf(holdfast.KindDenied, "config", "cannot open the configuration file %s: %w", holdfast.Quote(name), err).
			WithHint("make the configuration file readable for the server's user")
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "config", "cannot read the configuration file %s: %w", holdfast.Quote(name), err).
			WithHint("--config takes the path of a file")
	}
	if len(data) > maxFile {
		return nil, holdfast.Errorf(holdfast.KindTooLarge, "config", "the configuration file %s is larger than 1 MiB", holdfast.Quote(name)).
			WithHint("--config takes a small YAML file, see docs/config.md")
	}
	return data, nil
}

// parseYAML reads a YAML document of one map. A key that is given twice is an error.
func parseYAML(data []byte) (doc map[string]any, err error) {
	err = yaml.NewDecoder(bytes.NewReader(data), yaml.Strict()).Decode(&doc)
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF: the file is empty or has only comments
		return nil, errors.New(yaml.FormatError(err, false, false))
	}
	return doc, nil
}

// flatten writes the settings in m, a map that may contain maps, to values, each under its full name. prefix is
// the name of the group that m belongs to, with a dot; place returns the place of a key, for errors.
func flatten(values map[string]any, prefix string, m map[string]any, place func(string) string) error {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		name := prefix + key
		group, isMap := m[key].(map[string]any)
		isGroup := slices.ContainsFunc(settings, func(s setting) bool { return strings.HasPrefix(s.Name, name+".") })
		_, isSetting := find(name)
		switch {
		case m[key] == nil && (isGroup || isSetting):
			return holdfast.Errorf(holdfast.KindInvalid, "config", "the setting %s%s: no value is given", name, place(name)).
				WithHint("write a value for the setting or remove its line")
		case isSetting:
			values[name] = m[key]
		case isGroup && isMap:
			if err := flatten(values, name+".", group, place); err != nil {
				return err
			}
		default:
			return unknown(name, place(name))
		}
	}
	return nil
}

// lineOf returns the line of a key's value as the text ", line N", which follows the file's name in an error. It
// returns an empty text if the value was not found, as behind an alias.
func lineOf(data []byte, key string) string {
	path := (&yaml.PathBuilder{}).Root()
	for name := range strings.SplitSeq(key, ".") {
		path = path.Child(name)
	}
	node, err := path.Build().ReadNode(bytes.NewReader(data))
	if err != nil || node.GetToken() == nil {
		return ""
	}
	return fmt.Sprintf(", line %d", node.GetToken().Position.Line)
}

// unknown returns the error for a key that does not exist. place follows the key's name.
func unknown(name, place string) error {
	return holdfast.Errorf(holdfast.KindInvalid, "config", "there is no setting %s%s", holdfast.Quote(name), place).
		WithHint("%s", suggest(name))
}

// suggest returns a hint for an unknown key, with the known key that is most similar.
func suggest(name string) string {
	best, dist := "", len(name)/2+2
	for _, k := range Keys() {
		d := distance(name, k)
		if _, leaf, ok := strings.Cut(k, "."); ok {
			d = min(d, 1+distance(name, leaf))
		}
		if d < dist {
			best, dist = k, d
		}
	}
	if best == "" {
		return "docs/config.md lists every key"
	}
	return "did you mean " + best + "? docs/config.md lists every key"
}

// distance returns the least number of insertions, removals and replacements of bytes that turn a
// into b. If a has more than 64 bytes, it returns the length of a.
func distance(a, b string) int {
	if len(a) > 64 {
		return len(a)
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
