package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// LimitKeys are the keys of the limits that a workspace can lower for its boxes.
func LimitKeys() []string { return []string{"memory", "cpus", "pids", "tmp", "disk"} }

// Check checks the limits of a workspace, a value for each key, and returns them in their usual form. l are the
// server's limits; a value above the server's is denied. An empty value is kept.
func (l Limits) Check(set map[string]string) (map[string]string, error) {
	if len(set) == 0 {
		return nil, nil
	}
	out := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(set)) {
		if !slices.Contains(LimitKeys(), key) {
			return nil, holdfast.Errorf(holdfast.KindInvalid, "workspace", "the limits of a workspace have no key %s", holdfast.Quote(key)).
				WithHint("the limits of a workspace have the keys %s", strings.Join(LimitKeys(), ", "))
		}
		if out[key] = set[key]; set[key] == "" {
			continue
		}
		s, own, err := limit(key, set[key])
		if err != nil {
			return nil, err
		}
		server := Config{Limits: l}
		if amountOf(s.field(&own)) > amountOf(s.field(&server)) {
			return nil, holdfast.Errorf(holdfast.KindDenied, "workspace", "the limit %s of the workspace, %s, is above that of this server, %s", key, holdfast.Quote(set[key]), s.text(&server)).
				WithHint("ask the server's owner to raise the limit: holdfast serve --set %s=%s", s.Name, s.text(&own))
		}
		out[key] = s.text(&own)
	}
	return out, nil
}

// Lowered returns l, but with lower limits where set, the limits of a workspace, has lower values. It fails if a value
// cannot be read.
func (l Limits) Lowered(set map[string]string) (Limits, error) {
	if len(set) == 0 {
		return l, nil
	}
	c := Config{Limits: l}
	for key, text := range set {
		s, own, err := limit(key, text)
		if err != nil {
			return l, err
		}
		if to, v := s.field(&c), s.field(&own); amountOf(v) < amountOf(to) {
			to.Set(v)
		}
	}
	return c.Limits, nil
}

// limit parses text as the value of the setting limits.KEY. It returns the setting, and a Config in which only that setting
// has a value.
func limit(key, text string) (s setting, own Config, err error) {
	s, ok := find("limits." + key)
	if ok {
		err = s.setText(&own, text)
	} else {
		err = fmt.Errorf("use %s", strings.Join(LimitKeys(), ", "))
	}
	if err != nil {
		return s, own, holdfast.Errorf(holdfast.KindInvalid, "workspace", "the limit %s of a workspace cannot be %s", key, holdfast.Quote(text)).WithHint("%s", err.Error())
	}
	return s, own, nil
}
