package config

import (
	"strings"

	"github.com/holdfast-run/holdfast"
)

// Setting describes one setting, for people and clients.
type Setting struct {
	Name string `json:"name"`
	// Env is the environment variable that sets it.
	Env     string `json:"env"`
	Default string `json:"default"`
	// Values describes the allowed values.
	Values string `json:"values"`
	Doc    string `json:"doc"`
}

// Settings returns the descriptions of all settings, in the order of docs/config.md.
func Settings() []Setting {
	c := Defaults()
	var out []Setting
	for _, k := range keys() {
		out = append(out, Setting{Name: k.name, Env: k.env(), Default: k.get(&c), Values: k.value, Doc: k.doc})
	}
	return out
}

// Explain returns the description of the setting name, or of all settings in the group name, such as
// limits; invalid if neither exists.
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

// Value is the current value of a setting.
type Value struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	// From is the source of the value: FromDefault, the file's path, the variable's name, or "the
	// command line".
	From string `json:"from"`
}

// FromDefault is the source of a value that was not set anywhere.
const FromDefault = "default"

// Effective returns the value and source of each setting, as Load would use them, in the order of
// docs/config.md. It returns the same errors as Load. Values that may hold a secret are shown
// as "***".
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
