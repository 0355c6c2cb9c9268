package config

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// setting is one field of Config that a key sets.
type setting struct {
	name  string // of the key: the names from Config down to the field, with dots
	index []int  // of the field in Config
	tag   reflect.StructTag
}

// settings are all settings, in the order of the fields, which is the order of docs/config.md.
var settings = settingsOf(reflect.TypeFor[Config](), "", nil)

func settingsOf(group reflect.Type, prefix string, index []int) (out []setting) {
	for i := range group.NumField() {
		f := group.Field(i)
		s := setting{index: append(slices.Clone(index), i), tag: f.Tag}
		name, inline := strings.CutSuffix(f.Tag.Get("yaml"), ",inline")
		s.name = prefix + name
		switch {
		case f.Type.Kind() != reflect.Struct:
			out = append(out, s)
		case inline:
			out = append(out, settingsOf(f.Type, prefix, s.index)...)
		default:
			out = append(out, settingsOf(f.Type, s.name+".", s.index)...)
		}
	}
	return out
}

// Defaults returns the configuration in which every setting has its default. Only the data directory
// is empty.
func Defaults() Config {
	var c Config
	for _, s := range settings {
		if text := s.tag.Get("default"); text != "" {
			if err := s.setText(&c, text); err != nil {
				panic(fmt.Sprintf("the tag default of %s: %v", s.name, err)) // a mistake in config.go
			}
		}
	}
	return c
}

func find(name string) (setting, bool) {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.name == name })
	if i < 0 {
		return setting{}, false
	}
	return settings[i], true
}

// Keys lists the names of all settings, in the order of docs/config.md.
func Keys() []string {
	var out []string
	for _, s := range settings {
		out = append(out, s.name)
	}
	return out
}

// env returns the environment variable that sets the key: HOLDFAST_ and the name in capitals.
func (s setting) env() string {
	return "HOLDFAST_" + strings.ToUpper(strings.ReplaceAll(s.name, ".", "_"))
}

func (s setting) field(c *Config) reflect.Value {
	return reflect.ValueOf(c).Elem().FieldByIndex(s.index)
}

func (s setting) typ() reflect.Type { return reflect.TypeFor[Config]().FieldByIndex(s.index).Type }

// isTree reports whether the value is a tree of YAML, whose type reads it as JSON.
func (s setting) isTree() bool {
	return reflect.PointerTo(s.typ()).Implements(reflect.TypeFor[json.Unmarshaler]())
}

func (s setting) isList() bool { return s.typ() == reflect.TypeFor[[]string]() }

// oneof returns all allowed texts, none if others are allowed too.
func (s setting) oneof() []string {
	if text := s.tag.Get("oneof"); text != "" {
		return strings.Split(text, ", ")
	}
	return nil
}

func (s setting) hasNever() bool { return s.tag.Get("max") == "never" }

// setYAML sets the setting from a value of a YAML file. Its error says what to write instead.
func (s setting) setYAML(c *Config, v any) error {
	if s.isTree() {
		raw, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return json.Unmarshal(raw, s.field(c).Addr().Interface())
	}
	if parts, ok := v.([]any); ok && s.isList() {
		var texts []string
		for _, p := range parts {
			texts = append(texts, fmt.Sprint(p))
		}
		return s.setList(c, texts)
	}
	switch v.(type) {
	case []any, map[string]any:
		return errors.New("write one value, without a list or a map")
	}
	return s.setText(c, fmt.Sprint(v))
}

// setText sets the setting from text, as variables and flags have it. Commas separate the parts of a
// list. Its error says what to write instead.
func (s setting) setText(c *Config, text string) error {
	field := s.field(c)
	oneof := s.oneof()
	switch {
	case s.isTree():
		return fmt.Errorf("write %s as YAML into a file, and give the file with --config", s.name)
	case s.isList() && text == "":
		return s.setList(c, nil)
	case s.isList():
		return s.setList(c, strings.Split(text, ","))
	case oneof != nil:
		if !slices.Contains(oneof, text) {
			return fmt.Errorf("use %s", strings.Join(oneof, " or "))
		}
		field.SetString(text)
		return nil
	case field.Kind() == reflect.String:
		if err := s.check(text); err != nil {
			return err
		}
		field.SetString(text)
		return nil
	case s.hasNever() && (text == "never" || text == "0"):
		field.SetInt(0)
		return nil
	}
	if err := parse(field, text); err != nil || !s.inBounds(field) {
		return errors.New(s.bounds())
	}
	return nil
}

func (s setting) setList(c *Config, texts []string) error {
	var out []string
	for _, text := range texts {
		text = strings.TrimSpace(text)
		if err := s.check(text); err != nil {
			return err
		}
		out = append(out, text)
	}
	s.field(c).Set(reflect.ValueOf(out))
	return nil
}

// check checks a text by the setting's kind. Empty is allowed where it is the default.
func (s setting) check(text string) error {
	if strings.ContainsAny(text, "\x00\n\r") {
		return errors.New("write a value without control characters")
	}
	if text == "" && !s.isList() && s.tag.Get("default") == "" {
		return nil
	}
	return kinds[s.tag.Get("kind")](text)
}

// parse sets a number, a time, or a value that has a reader of its own.
func parse(v reflect.Value, text string) (err error) {
	var n int64
	var u uint64
	var f float64
	switch to := v.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		return to.UnmarshalText([]byte(text))
	case *time.Duration:
		*to, err = time.ParseDuration(text)
		return err
	}
	switch bits := v.Type().Bits(); {
	case v.CanInt():
		n, err = strconv.ParseInt(text, 10, bits)
		v.SetInt(n)
	case v.CanUint():
		u, err = strconv.ParseUint(text, 10, bits)
		v.SetUint(u)
	default:
		f, err = strconv.ParseFloat(text, bits)
		v.SetFloat(f)
	}
	return err
}

// The largest time and size, far above any real one: sums of a few of them do not overflow.
const (
	longest = 10 * 365 * 24 * time.Hour
	largest = Size(math.MaxInt64 / 4)
)

// inBounds reports whether a value lies within the tags min and max.
func (s setting) inBounds(v reflect.Value) bool {
	low, high := reflect.New(v.Type()).Elem(), reflect.New(v.Type()).Elem()
	text := s.tag.Get("max")
	switch v.Interface().(type) {
	case time.Duration:
		text = longest.String()
	case Size:
		text = largest.String()
	}
	if parse(low, s.tag.Get("min")) != nil || parse(high, text) != nil {
		return false
	}
	switch {
	case v.CanInt():
		return low.Int() <= v.Int() && v.Int() <= high.Int()
	case v.CanUint():
		return low.Uint() <= v.Uint() && v.Uint() <= high.Uint()
	}
	return low.Float() <= v.Float() && v.Float() <= high.Float()
}

// bounds says which numbers, sizes or times are allowed.
func (s setting) bounds() string {
	low, high := s.tag.Get("min"), s.tag.Get("max")
	switch s.typ() {
	case reflect.TypeFor[time.Duration]():
		text := "use a time as 90s, 15m or 1h, at least " + low
		if s.hasNever() {
			text += ", or never"
		}
		return text
	case reflect.TypeFor[Size]():
		return "write a number with KiB, MiB, GiB or TiB, as 512MiB, at least " + low
	}
	if k := s.typ().Kind(); k == reflect.Float32 || k == reflect.Float64 {
		return fmt.Sprintf("use a number from %s to %s", low, high)
	}
	return fmt.Sprintf("use a whole number from %s to %s", low, high)
}

// text returns the value as a file or a flag would give it, a tree as JSON.
func (s setting) text(c *Config) string {
	v := s.field(c)
	switch x := v.Interface().(type) {
	case time.Duration:
		if x == 0 && s.hasNever() {
			return "never"
		}
		return shortDuration(x)
	case []string:
		return strings.Join(x, ",")
	}
	if !s.isTree() {
		return fmt.Sprint(v.Interface())
	}
	raw, err := json.Marshal(v.Interface())
	if v.Len() == 0 || err != nil { // an error cannot happen: trees hold only strings and numbers
		return ""
	}
	return string(raw)
}

// values describes the allowed values in a few words.
func (s setting) values() string {
	switch kind, oneof := s.tag.Get("kind"), s.tag.Get("oneof"); {
	case kind != "":
		return kind
	case oneof != "":
		return oneof
	case s.hasNever():
		return "duration, never"
	}
	switch s.typ() {
	case reflect.TypeFor[time.Duration]():
		return "duration"
	case reflect.TypeFor[Size]():
		return "size"
	case reflect.TypeFor[Percent]():
		return "percent"
	}
	return "number"
}

// shortDuration returns a duration as text without trailing zero units: 1h0m0s becomes 1h.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}
