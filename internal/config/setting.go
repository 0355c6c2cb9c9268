package config

import (
	"cmp"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// setting is one field of Config that a key sets, with the field's tags.
type setting struct {
	Setting
	index    []int // index of the field in Config
	typ      reflect.Type
	tree     bool // the value is a tree of YAML, whose type decodes it from JSON; only a file can give it
	list     bool // the value is a list of texts
	oneof    []string
	min, max string
	secret   bool
}

// settings are all settings, in the order of the fields, which is the order of docs/config.md.
var settings = settingsOf(reflect.TypeFor[Config](), "", nil)

func settingsOf(group reflect.Type, prefix string, index []int) (out []setting) {
	for i := range group.NumField() {
		f := group.Field(i)
		at := append(slices.Clone(index), i)
		name, inline := strings.CutSuffix(f.Tag.Get("yaml"), ",inline")
		switch {
		case f.Type.Kind() != reflect.Struct:
			out = append(out, settingOf(f, prefix+name, at))
		case inline:
			out = append(out, settingsOf(f.Type, prefix, at)...)
		default:
			out = append(out, settingsOf(f.Type, prefix+name+".", at)...)
		}
	}
	return out
}

func settingOf(f reflect.StructField, name string, index []int) setting {
	tag := f.Tag.Get
	s := setting{
		Setting: Setting{
			Name: name, Env: variable(name), Default: tag("default"), Doc: tag("doc"),
			Values: cmp.Or(tag("kind"), tag("oneof"), kindOf[f.Type], "number"),
		},
		index: index, typ: f.Type, list: f.Type == reflect.TypeFor[[]string](),
		tree: reflect.PointerTo(f.Type).Implements(reflect.TypeFor[json.Unmarshaler]()),
		min:  tag("min"), max: tag("max"), secret: tag("secret") == "true",
	}
	if text := tag("oneof"); text != "" {
		s.oneof = strings.Split(text, ", ")
	}
	if s.tree {
		s.Env = ""
	}
	return s
}

// kindOf are the kinds that follow from the type of a field.
var kindOf = map[reflect.Type]string{
	reflect.TypeFor[time.Duration](): "duration", reflect.TypeFor[Size](): "size", reflect.TypeFor[Percent](): "percent",
}

// orNever is the kind of a time that may also be never, which is 0.
const orNever = "duration, never"

// Defaults returns a configuration in which every setting has its default value. Only the data
// directory is empty.
func Defaults() Config {
	var c Config
	for _, s := range settings {
		if s.Default != "" {
			if err := s.setText(&c, s.Default); err != nil {
				panic(fmt.Sprintf("the tag default of %s: %v", s.Name, err)) // the error is a mistake in the tags in config.go
			}
		}
	}
	return c
}

func find(name string) (setting, bool) {
	i := slices.IndexFunc(settings, func(s setting) bool { return s.Name == name })
	if i < 0 {
		return setting{}, false
	}
	return settings[i], true
}

// variable returns the environment variable of a key: HOLDFAST_ and the name in capitals, with _ for each dot.
func variable(name string) string {
	return "HOLDFAST_" + strings.ToUpper(strings.ReplaceAll(name, ".", "_"))
}

func (s setting) field(c *Config) reflect.Value {
	return reflect.ValueOf(c).Elem().FieldByIndex(s.index)
}

// setYAML sets the setting from a value of a YAML file. Its error says what to write instead.
func (s setting) setYAML(c *Config, v any) error {
	list, isList := v.([]any)
	_, isMap := v.(map[string]any)
	switch {
	case s.tree:
		raw, err := json.Marshal(v)
		if err != nil {
			return err
		}
		return json.Unmarshal(raw, s.field(c).Addr().Interface())
	case isList && s.list:
		return s.setList(c, texts(list))
	case s.list && isMap:
		return errors.New("write a list for the setting, not a map")
	case isList || isMap:
		return errors.New("write one value for the setting, not a list or a map")
	}
	return s.setText(c, fmt.Sprint(v))
}

// setText sets the setting from text, as variables and flags have it. Commas separate the parts of a
// list. Its error says what to write instead.
func (s setting) setText(c *Config, text string) error {
	switch {
	case s.tree:
		return fmt.Errorf("write %s as YAML into a file, and give the file with --config", s.Name)
	case s.list && text == "":
		return s.setList(c, nil)
	case s.list:
		return s.setList(c, strings.Split(text, ","))
	case s.typ.Kind() == reflect.String:
		if err := s.check(text); err != nil {
			return err
		}
		s.field(c).SetString(text)
		return nil
	case s.Values == orNever && (text == "never" || text == "0"):
		s.field(c).SetInt(0)
		return nil
	}
	v, err := s.parse(text)
	if err != nil || !s.inBounds(v) {
		return errors.New(s.bounds())
	}
	s.field(c).Set(v)
	return nil
}

func (s setting) setList(c *Config, parts []string) error {
	for i := range parts {
		parts[i] = strings.TrimSpace(parts[i])
		if err := s.check(parts[i]); err != nil {
			return err
		}
	}
	s.field(c).Set(reflect.ValueOf(parts))
	return nil
}

// check checks a text by the setting's kind. The empty text is allowed if it is the default, but not in a list.
func (s setting) check(text string) error {
	switch {
	case s.oneof != nil && !slices.Contains(s.oneof, text):
		return fmt.Errorf("use %s", strings.Join(s.oneof, " or "))
	case s.oneof != nil || text == "" && s.Default == "" && !s.list:
		return nil
	case strings.ContainsAny(text, "\x00\n\r"):
		return errors.New("write a value without control characters")
	}
	return kinds[s.Values](text)
}

// parse reads a number, a time, or a value whose type implements encoding.TextUnmarshaler.
func (s setting) parse(text string) (v reflect.Value, err error) {
	v = reflect.New(s.typ).Elem()
	switch to := v.Addr().Interface().(type) {
	case encoding.TextUnmarshaler:
		return v, to.UnmarshalText([]byte(text))
	case *time.Duration:
		*to, err = time.ParseDuration(text)
		return v, err
	}
	if v.CanInt() {
		n, err := strconv.ParseInt(text, 10, s.typ.Bits())
		v.SetInt(n)
		return v, err
	}
	f, err := strconv.ParseFloat(text, 64)
	v.SetFloat(f)
	return v, err
}

// inBounds reports whether a value lies between the tags min and max.
func (s setting) inBounds(v reflect.Value) bool {
	low, err := s.parse(s.min)
	high, err2 := s.parse(s.max)
	return err == nil && err2 == nil && amountOf(low) <= amountOf(v) && amountOf(v) <= amountOf(high)
}

// amountOf returns a number, a size or a time as a number.
func amountOf(v reflect.Value) float64 { return v.Convert(reflect.TypeFor[float64]()).Float() }

// bounds says which numbers, sizes or times are allowed.
func (s setting) bounds() string {
	switch s.Values {
	case "duration":
		return "use a time as 90s, 15m or 1h, at least " + s.min
	case orNever:
		return "use a time as 90s, 15m or 1h, at least " + s.min + ", or never"
	case "size":
		return "write a size as a number with KiB, MiB, GiB or TiB, as 512MiB, at least " + s.min
	}
	whole := ""
	if s.typ.Kind() != reflect.Float64 {
		whole = "whole "
	}
	return fmt.Sprintf("use a %snumber from %s to %s", whole, s.min, s.max)
}

// text returns the value as a file or a flag would give it, a tree as JSON.
func (s setting) text(c *Config) string {
	v := s.field(c)
	switch x := v.Interface().(type) {
	case []string:
		return strings.Join(x, ",")
	case time.Duration:
		if x == 0 && s.Values == orNever {
			return "never"
		}
		return shortDuration(x)
	}
	if !s.tree {
		return fmt.Sprint(v.Interface())
	}
	raw, err := json.Marshal(v.Interface())
	if v.Len() == 0 || err != nil { // an error cannot happen: trees hold only strings and numbers
		return ""
	}
	return string(raw)
}

// texts returns the values of a list as texts.
func texts(list []any) (out []string) {
	for _, v := range list {
		out = append(out, fmt.Sprint(v))
	}
	return out
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
