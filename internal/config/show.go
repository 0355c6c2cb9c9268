package config

import (
	"strings"

	"github.com/holdfast-run/holdfast"
)

// Setting is one setting, for people who look for it.
type Setting struct {
	Name string `json:"name"`
	// Env is the variable that sets it.
	Env     string `json:"env"`
	Default string `json:"default"`
	// Values says what may be written.
	Values string `json:"values"`
	Doc    string `json:"doc"`
}

// Settings are all settings, in the order of docs/config.md.
func Settings() []Setting {
	c := Defaults()
	var out []Setting
	for _, k := range keys() {
		out = append(out, Setting{Name: k.name, Env: k.env(), Default: k.get(&c), Values: k.value, Doc: k.doc})
	}
	return out
}

// Explain is a setting, or the settings of a group such as limits; invalid if there is
// neither.
func Explain(name string) ([]Setting, error) {
	var out []Setting
	for _, s := range Settings() {
		if s.Name == name || strings.HasPrefix(s.Name, name+".") {
			out = append(out, s)
		}
	}
	if len(out) == 0 {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "config", "there is no setting %s", holdfast.Quote(name)).
			WithHint("%s", suggest(name))
	}
	return out, nil
}

// Value is what a setting is set to.
type Value struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// From is FromDefault, the file, the variable, or "the command line".
	From string `json:"from"`
}

// FromDefault is where a value comes from that nobody set.
const FromDefault = "default"

// Effective is the configuration that Load would make, setting by setting, in the order
// of docs/config.md. It refuses what Load refuses. Values that may hold a secret are
// shown as "***".
func Effective(src Source) ([]Value, error) {
	c, err := Load(src)
	if err != nil {
		return nil, err
	}
	file := map[string]string{}
	if src.File != "" {
		if file, err = readFile(src.File); err != nil {
			return nil, err
		}
	}
	env := map[string]string{}
	if src.Getenv != nil {
		env = environment(src.Getenv)
	}
	var out []Value
	for _, k := range keys() {
		v := Value{Name: k.name, Value: k.get(&c), From: FromDefault}
		if _, ok := file[k.name]; ok {
			v.From = src.File
		}
		if _, ok := env[k.name]; ok {
			v.From = k.env()
			if k.name == "data" && src.Getenv("HOLDFAST_HOME") != "" {
				v.From = "HOLDFAST_HOME"
			}
		}
		if _, ok := src.Flags[k.name]; ok {
			v.From = "the command line"
		}
		if k.quiet && v.Value != "" {
			v.Value = "***"
		}
		out = append(out, v)
	}
	return out, nil
}
