package config

import (
	"fmt"
	"slices"
	"strings"
)

// document returns the text of docs/config.md, made from the tags of Config.
func document() string {
	all := Settings()
	var b strings.Builder
	b.WriteString(`# Configuration

` + "`holdfast serve --config FILE`" + ` reads the server's settings from a YAML file. For each setting, a flag wins over an
environment variable, which wins over the file, which wins over the default. If the file has an unknown key, the server
does not start, and the error names the key. Sizes are written with a unit (` + "`512MiB`, `4GiB`" + `), times as
` + "`90s`, `15m`, `1h`" + `. A key without a variable (` + "`hooks`, `webhooks`, `acp`" + `) can be set only in the file, because
its value is a tree or a list.

The setting ` + "`data`" + ` names the data directory; the variable ` + "`HOLDFAST_HOME`" + ` sets it, too, and wins over ` + "`HOLDFAST_DATA`" + `. If
nothing sets ` + "`data`" + `, the data directory is ` + "`$XDG_DATA_HOME/holdfast`" + ` if ` + "`XDG_DATA_HOME`" + ` is set, else ` + "`~/.holdfast`" + `.

This page is generated: after a change of the settings, ` + "`go test ./internal/config -update`" + ` writes this page anew.

| Key | Variable | Default | Values | Meaning |
|---|---|---|---|---|
`)
	for _, s := range all {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", s.Name, code(s.Env), code(s.Default), s.Values, s.Doc)
	}
	b.WriteString("\nThe defaults, as a file:\n\n```yaml\n")
	last := ""
	for _, s := range all {
		group, name, indent := "", s.Name, ""
		if before, after, ok := strings.Cut(s.Name, "."); ok {
			group, name, indent = before, after, "  "
		}
		if group != last && group != "" {
			fmt.Fprintf(&b, "%s%s:\n", comment(group, all), group)
		}
		last = group
		if s.Default == "" {
			fmt.Fprintf(&b, "%s# %s:\n", indent, name)
		} else {
			fmt.Fprintf(&b, "%s%s: %s\n", indent, name, s.Default)
		}
	}
	b.WriteString("```\n")
	return b.String()
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + text + "`"
}

// comment returns the beginning of a comment if no setting of a group has a default.
func comment(group string, all []Setting) string {
	if slices.ContainsFunc(all, func(s Setting) bool { return strings.HasPrefix(s.Name, group+".") && s.Default != "" }) {
		return ""
	}
	return "# "
}
