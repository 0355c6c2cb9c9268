package config

import (
	"fmt"
	"strings"
)

// Document returns the text of docs/config.md, made from the table of keys.
func Document() string {
	c := Defaults()
	var b strings.Builder
	b.WriteString(`# Configuration

` + "`holdfast serve --config FILE`" + ` reads a YAML file. A flag wins over an environment variable, which
wins over the file, which wins over the default. An unknown key is refused by name. Sizes are
written with a unit (` + "`512MiB`, `4GiB`" + `), times as ` + "`90s`, `15m`, `1h`" + `.

The data directory is ` + "`$HOLDFAST_HOME`, else `$XDG_DATA_HOME/holdfast`, else `~/.holdfast`" + `.

This page is generated: ` + "`go test ./internal/config -update`" + `.

| Key | Variable | Default | Values | Meaning |
|---|---|---|---|---|
`)
	for _, k := range keys() {
		def := k.get(&c)
		if def != "" {
			def = "`" + def + "`"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %s | %s | %s |\n", k.name, k.env(), def, k.value, k.doc)
	}
	b.WriteString("\nThe defaults, as a file:\n\n```yaml\n")
	section := ""
	for _, k := range keys() {
		name, indent := k.name, ""
		if group, leaf, ok := strings.Cut(k.name, "."); ok {
			if group != section && allEmpty(&c, group) {
				fmt.Fprintf(&b, "# %s:\n", group)
			} else if group != section {
				fmt.Fprintf(&b, "%s:\n", group)
			}
			section, name, indent = group, leaf, "  "
		}
		line := fmt.Sprintf("%s%s: %s\n", indent, name, k.get(&c))
		if k.get(&c) == "" {
			line = fmt.Sprintf("%s# %s:\n", indent, name)
		}
		b.WriteString(line)
	}
	b.WriteString("```\n")
	return b.String()
}

// allEmpty reports whether no key of a group has a default.
func allEmpty(c *Config, group string) bool {
	for _, k := range keys() {
		if strings.HasPrefix(k.name, group+".") && k.get(c) != "" {
			return false
		}
	}
	return true
}
