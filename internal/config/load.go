package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/holdfast-run/holdfast"
)

// Source is where Load gets settings from. Later sources override earlier ones: the defaults, the
// file, the environment, the flags.
type Source struct {
	// File is the path of the YAML file given with --config; empty reads no file.
	File string
	// Getenv returns the value of an environment variable; nil for an empty environment.
	Getenv func(string) string
	// Flags are the settings given on the command line, by key such as "listen" or
	// "limits.memory".
	Flags map[string]string
}

// maxFile is the largest configuration file, in bytes, far above any real one.
const maxFile = 1 << 20

// Load makes the configuration from all sources. A wrong setting is refused as invalid, with an
// error that names the key, the value, its source and the allowed values; for a file that
// cannot be read the kind is not_found or denied.
func Load(src Source) (Config, error) {
	getenv := src.Getenv
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	c := Defaults()
	if src.File != "" {
		values, err := readFile(src.File)
		if err != nil {
			return Config{}, err
		}
		if err := apply(&c, values, func(k key) string { return k.name + " in " + src.File }); err != nil {
			return Config{}, err
		}
	}
	if err := apply(&c, environment(getenv), key.env); err != nil {
		return Config{}, err
	}
	if err := apply(&c, src.Flags, func(k key) string { return "--" + k.name }); err != nil {
		return Config{}, err
	}
	if err := finish(&c, getenv); err != nil {
		return Config{}, err
	}
	return c, nil
}

// DataDir returns the default data directory, for clients: HOLDFAST_HOME, else
// $XDG_DATA_HOME/holdfast, else ~/.holdfast.
func DataDir(getenv func(string) string) (string, error) {
	c := Config{Data: environment(getenv)["data"]}
	err := resolveData(&c, getenv)
	return c.Data, err
}

// environment returns the settings from environment variables, by key. HOLDFAST_HOME is another
// name of HOLDFAST_DATA and overrides it.
func environment(getenv func(string) string) map[string]string {
	values := map[string]string{}
	for _, k := range keys() {
		if v := getenv(k.env()); v != "" {
			values[k.name] = v
		}
	}
	if home := getenv("HOLDFAST_HOME"); home != "" {
		values["data"] = home
	}
	return values
}

// apply sets values, which are by key, in c. origin returns the name of a key with its source, for
// errors.
func apply(c *Config, values map[string]string, origin func(key) string) error {
	all := keys()
	seen := 0
	for _, k := range all {
		v, ok := values[k.name]
		if !ok {
			continue
		}
		seen++
		if err := k.set(c, v); err != nil && k.quiet {
			return holdfast.Errorf(holdfast.KindInvalid, "config", "%s is not allowed: %w", origin(k), err).
				WithHint("docs/config.md shows every key")
		} else if err != nil {
			return holdfast.Errorf(holdfast.KindInvalid, "config", "%s: %s is not allowed", origin(k), holdfast.Quote(strings.Join(items(v), ","))).
				WithHint("%s", err.Error())
		}
	}
	if seen == len(values) {
		return nil
	}
	var unknown []string
	for name := range values {
		if !slices.ContainsFunc(all, func(k key) bool { return k.name == name }) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return holdfast.Errorf(holdfast.KindInvalid, "config", "there is no setting %s", holdfast.Quote(unknown[0])).
		WithHint("%s", suggest(unknown[0]))
}

// finish sets the data directory and checks settings that depend on each other.
func finish(c *Config, getenv func(string) string) error {
	if err := resolveData(c, getenv); err != nil {
		return err
	}
	if c.Limits.NofileSoft > c.Limits.NofileHard {
		return holdfast.Errorf(holdfast.KindInvalid, "config", "limits.nofile_soft: \"%d\" is above limits.nofile_hard, which is %d",
			c.Limits.NofileSoft, c.Limits.NofileHard).WithHint("raise limits.nofile_hard or lower limits.nofile_soft")
	}
	if c.FreezeAfter > 0 && c.StopAfter > 0 && c.FreezeAfter > c.StopAfter {
		return holdfast.Errorf(holdfast.KindInvalid, "config", "freeze_after: %q is longer than stop_after, which is %s",
			shortDuration(c.FreezeAfter), shortDuration(c.StopAfter)).WithHint("set freeze_after: never, or a shorter time")
	}
	return thinkingFits(&c.Models)
}

func resolveData(c *Config, getenv func(string) string) error {
	dir := c.Data
	home := getenv("HOME")
	xdg := getenv("XDG_DATA_HOME")
	switch {
	case dir != "" && (dir == "~" || strings.HasPrefix(dir, "~/")) && home != "":
		dir = filepath.Join(home, dir[1:])
	case dir != "":
	case filepath.IsAbs(xdg): // the XDG specification says to ignore a relative path
		dir = filepath.Join(xdg, "holdfast")
	case filepath.IsAbs(home):
		dir = filepath.Join(home, ".holdfast")
	default:
		return holdfast.Errorf(holdfast.KindInvalid, "config", "data: there is no home directory to put the data directory in").
			WithHint("set HOLDFAST_HOME to a directory")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return holdfast.Errorf(holdfast.KindInvalid, "config", "data: %s has no absolute path: %w", holdfast.Quote(dir), err).
			WithHint("set HOLDFAST_HOME to an absolute path")
	}
	c.Data = abs
	return nil
}

func readFile(name string) (map[string]string, error) {
	data, err := readAll(name)
	if err != nil {
		return nil, err
	}
	values, err := parseYAML(data)
	if err != nil {
		var he *holdfast.Error
		if errors.As(err, &he) {
			return nil, he
		}
		return nil, holdfast.Errorf(holdfast.KindInvalid, "config", "%s is not a configuration: %w", holdfast.Quote(name), err).
			WithHint("docs/config.md shows every key")
	}
	return values, nil
}

func readAll(name string) ([]byte, error) {
	f, err := os.Open(name)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, holdfast.Errorf(holdfast.KindNotFound, "config", "there is no file %s", holdfast.Quote(name)).
			WithHint("check --config, or leave it out to run with the defaults")
	case err != nil:
		return nil, holdfast.Errorf(holdfast.KindDenied, "config", "cannot open %s: %w", holdfast.Quote(name), err).
			WithHint("make the file readable for the server's user")
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "config", "cannot read %s: %w", holdfast.Quote(name), err).
			WithHint("--config takes a file")
	}
	if len(data) > maxFile {
		return nil, holdfast.Errorf(holdfast.KindTooLarge, "config", "%s is larger than 1 MiB", holdfast.Quote(name)).
			WithHint("--config takes a small YAML file, see docs/config.md")
	}
	return data, nil
}

// parseYAML flattens a YAML document into values by dotted key. A list or a map in the place of a
// single value is refused with an error that names the key.
func parseYAML(data []byte) (map[string]string, error) {
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, nil
	}
	var doc yaml.MapSlice
	dec := yaml.NewDecoder(bytes.NewReader(data), yaml.Strict(), yaml.UseOrderedMap())
	if err := dec.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) { // the file has only comments
			return nil, nil
		}
		return nil, fmt.Errorf("%s", yaml.FormatError(err, false, false))
	}
	values := map[string]string{}
	if err := flatten(values, "", doc); err != nil {
		return nil, err
	}
	return values, nil
}

func flatten(values map[string]string, prefix string, m yaml.MapSlice) error {
	for _, item := range m {
		name := prefix + fmt.Sprint(item.Key)
		switch v := item.Value.(type) {
		case yaml.MapSlice:
			if name == hooksKey || name == acpKey {
				tree, err := treeJSON(v)
				if err != nil {
					return holdfast.Errorf(holdfast.KindInvalid, "config", "%s: %w", name, err)
				}
				values[name] = tree
				continue
			}
			if prefix != "" {
				return holdfast.Errorf(holdfast.KindInvalid, "config", "there is no setting %s", holdfast.Quote(name)).
					WithHint("%s", suggest(name))
			}
			if err := flatten(values, name+".", v); err != nil {
				return err
			}
		case nil:
			return holdfast.Errorf(holdfast.KindInvalid, "config", "%s: no value is given", name).
				WithHint("write a value or remove the line")
		case []any:
			if !takesList(name) {
				return holdfast.Errorf(holdfast.KindInvalid, "config", "%s: a list is given instead of one value", name).
					WithHint("%s", suggest(name))
			}
			var lines strings.Builder
			for _, part := range v {
				if m, ok := part.(yaml.MapSlice); ok {
					var err error
					if part, err = treeJSON(m); err != nil {
						return holdfast.Errorf(holdfast.KindInvalid, "config", "%s: %w", name, err)
					}
				}
				fmt.Fprintln(&lines, part)
			}
			values[name] = lines.String()
		default:
			values[name] = fmt.Sprint(v)
		}
	}
	return nil
}

// takesList reports whether a key's value may be written as a list.
func takesList(name string) bool {
	return slices.ContainsFunc(keys(), func(k key) bool { return k.name == name && k.list })
}

// items splits the value of a list into its parts. A value that ends with a line break has one on
// each line (from a list in a file); any other separates them by commas.
func items(s string) []string {
	if lines, ok := strings.CutSuffix(s, "\n"); ok {
		return strings.Split(lines, "\n")
	}
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
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

// distance returns the least number of insertions, removals and replacements of characters that
// turn a into b. For an a of more than 64 bytes it returns that length.
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
