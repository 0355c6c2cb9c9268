package config

import (
	"cmp"
	"strings"
)

// Setting describes one setting, for people and clients.
type Setting struct {
	Name string `json:"name"`
	// Env is the environment variable that sets the setting; empty for a tree, which only a file can give.
	Env     string `json:"env"`
	Default string `json:"default"`
	// Values describes the allowed values.
	Values string `json:"values"`
	Doc    string `json:"doc"`
}

// Settings returns the descriptions of all settings, in the order of docs/config.md.
func Settings() []Setting {
	var out []Setting
	for _, s := range settings {
		out = append(out, s.Setting)
	}
	return out
}

// Keys lists the names of all settings, in the order of docs/config.md.
func Keys() []string {
	var out []string
	for _, s := range settings {
		out = append(out, s.Name)
	}
	return out
}

// Allowed returns the values of a setting for which only listed values are allowed; none for any other setting.
func Allowed(name string) []string {
	s, _ := find(name)
	return s.oneof
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
		return nil, unknown(name, "")
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
	c, from, err := load(src)
	if err != nil {
		return nil, err
	}
	var out []Value
	for _, s := range settings {
		v := Value{Name: s.Name, Value: s.text(&c), From: cmp.Or(from[s.Name], FromDefault)}
		if s.secret && v.Value != "" {
			v.Value = "***"
		}
		out = append(out, v)
	}
	return out, nil
}
