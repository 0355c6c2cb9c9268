package plain

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// Workspace returns a workspace as lines, each with the name and value of a field that is set.
func Workspace(w holdfast.Workspace) []string {
	var limits []string
	for _, name := range slices.Sorted(maps.Keys(w.Limits)) {
		limits = append(limits, name+"="+w.Limits[name])
	}
	rows := [][2]string{
		{"workspace", string(w.ID)},
		{"config error", w.ConfigError},
		{"title", w.Title},
		{"directory", w.Dir},
		{"umask", w.Umask},
		{"sessions", strconv.Itoa(w.Sessions)},
		{"trust", string(w.DefaultTrust)},
		{"runtime", w.Runtime},
		{"model", w.Model},
		{"mount", w.Mount},
		{"network", network(w.Network)},
		{"env", strings.Join(slices.Sorted(maps.Keys(w.Env)), ", ")},
		{"limits", strings.Join(limits, ", ")},
	}
	for _, kind := range []string{"allow", "ask", "deny"} {
		for _, rule := range w.Permissions[kind] {
			rows = append(rows, [2]string{kind, rule})
		}
	}
	return setFields(append(rows,
		[2]string{"revision", strconv.FormatInt(w.Revision, 10)},
		[2]string{"created", When(w.CreatedAt)},
		[2]string{"updated", When(w.UpdatedAt)}))
}

// setFields returns a line with name and value for each row that has a value.
func setFields(rows [][2]string) (out []string) {
	for _, r := range rows {
		if r[1] != "" {
			out = append(out, fmt.Sprintf("%-12s %s", r[0], OneLine(r[1])))
		}
	}
	return out
}
