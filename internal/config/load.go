package config

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

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

// Load makes the configuration from all sources. A wrong setting is refused as invalid, with an
// error that names the key, the value, its source and the allowed values; for a file that
// cannot be opened the kind is not_found or denied, for one of more than 1 MiB too_large.
func Load(src Source) (Config, error) {
	c, _, err := load(src)
	return c, err
}

// layer are the settings that one source gives, by key.
type layer struct {
	values map[string]any
	// yaml is true if the values are those of a YAML file and not texts.
	yaml bool
	// origin returns a key as its source names it, for a file with the line, for error messages.
	origin func(name string) string
	// from is the name of the source of all keys of the layer; if it is empty, origin names the source of each key.
	from string
}

// load makes the configuration, and returns the name of the source of each setting that a source gives.
func load(src Source) (Config, map[string]string, error) {
	getenv := src.Getenv
	if getenv == nil {
		getenv = func(string) string { return "" }
	}
	file, err := readFile(src.File)
	if err != nil {
		return Config{}, nil, err
	}
	c, from := Defaults(), map[string]string{}
	for _, l := range []layer{file, environment(getenv), commandLine(src.Flags)} {
		if err := l.apply(&c, from); err != nil {
			return Config{}, nil, err
		}
	}
	if err := finish(&c, getenv); err != nil {
		return Config{}, nil, err
	}
	return c, from, nil
}

// DataDir returns the data directory that the environment names, for clients: HOLDFAST_HOME, else
// HOLDFAST_DATA, else $XDG_DATA_HOME/holdfast, else ~/.holdfast.
func DataDir(getenv func(string) string) (string, error) {
	c := Config{Data: cmp.Or(getenv("HOLDFAST_HOME"), getenv("HOLDFAST_DATA"))}
	err := resolveData(&c, getenv)
	return c.Data, err
}

// environment returns the settings from environment variables. HOLDFAST_HOME is another name of
// HOLDFAST_DATA and overrides it.
func environment(getenv func(string) string) layer {
	l := layer{values: map[string]any{}, origin: func(name string) string {
		if name == "data" && getenv("HOLDFAST_HOME") != "" {
			return "HOLDFAST_HOME"
		}
		return variable(name)
	}}
	for _, name := range Keys() {
		if text := getenv(l.origin(name)); text != "" {
			l.values[name] = text
		}
	}
	return l
}

func commandLine(flags map[string]string) layer {
	l := layer{values: map[string]any{}, from: "the command line", origin: func(name string) string { return "--" + name }}
	for name, text := range flags {
		l.values[name] = text
	}
	return l
}

// apply sets the settings of the layer in c, and writes the source of each of these settings into from.
func (l layer) apply(c *Config, from map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(l.values)) {
		s, ok := find(name)
		if !ok {
			return unknown(name, "")
		}
		if err := l.set(c, s); err != nil {
			return err
		}
		from[name] = cmp.Or(l.from, l.origin(name))
	}
	return nil
}

func (l layer) set(c *Config, s setting) error {
	v := l.values[s.Name]
	shown := fmt.Sprint(v)
	if list, ok := v.([]any); ok {
		shown = strings.Join(texts(list), ",")
	}
	var err error
	if l.yaml {
		err = s.setYAML(c, v)
	} else {
		err = s.setText(c, shown)
	}
	switch {
	case err == nil:
		return nil
	case s.tree:
		return holdfast.Errorf(holdfast.KindInvalid, "config", "the value of %s is not allowed: %w", l.origin(s.Name), err).
			WithHint("docs/config.md shows every key")
	}
	return holdfast.Errorf(holdfast.KindInvalid, "config", "%s: %s is not allowed", l.origin(s.Name), holdfast.Quote(shown)).
		WithHint("%s", err.Error())
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
		return holdfast.Errorf(holdfast.KindInvalid, "config", "data: HOLDFAST_HOME is not set, and there is no home directory to put the data directory in").
			WithHint("set HOLDFAST_HOME to a directory")
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return holdfast.Errorf(holdfast.KindInvalid, "config", "data: the absolute path of the data directory %s cannot be found: %w", holdfast.Quote(dir), err).
			WithHint("set HOLDFAST_HOME to an absolute path")
	}
	c.Data = abs
	return nil
}

// leastAnswer is the number of tokens of an answer that must remain after thinking.
const leastAnswer = 1024

// thinkingFits refuses a number of thinking tokens that does not leave leastAnswer of MaxTokens:
// MaxTokens limits thinking and answer together, and budgets reserve that much.
func thinkingFits(m *Models) error {
	n, err := strconv.Atoi(m.Anthropic.Thinking)
	if err != nil || n+leastAnswer <= m.MaxTokens {
		return nil
	}
	return holdfast.Errorf(holdfast.KindInvalid, "config", "anthropic.thinking: \"%d\" leaves too little of max_tokens, which is %d and bounds thinking and answer together",
		n, m.MaxTokens).WithHint("set max_tokens: %d", n+leastAnswer)
}
