package folder

import (
	"fmt"
	"strings"
	"unicode"
)

// List returns a list of the skills, without commands and hidden skills, for a model that reads files: name,
// description, and the file to read. at is the path of the workspace as the agent has it, ending with a slash; the
// workspace contains the files of the folder.
func (f *Folder) List(at string) string {
	if f == nil {
		return ""
	}
	var b strings.Builder
	for i := range f.Skills {
		s := &f.Skills[i]
		if s.Hidden || s.Command {
			continue
		}
		fmt.Fprintf(&b, "- %s: %s (%s)\n", s.Name, s.Description, at+s.File)
	}
	if b.Len() == 0 {
		return ""
	}
	return "\n\nSkills: when a task fits a description, read the file first and follow it.\n\n" + b.String()
}

// named returns the skill or command that a message calls as /NAME, and the arguments behind the name. It returns nil
// if there is no such skill, or if users may not call it.
func (f *Folder) named(text string) (s *Skill, args string) {
	name, args, ok := Slash(text)
	if s = f.Skill(name); !ok || s == nil || s.Internal {
		return nil, ""
	}
	return s, args
}

// Names reports whether a message calls a skill or command of the folder.
func (f *Folder) Names(text string) bool {
	s, _ := f.named(text)
	return s != nil
}

// Qualify adds the plugin's name to the command that a message calls, so that the Claude Code CLI
// does not run one of its own commands instead.
func (f *Folder) Qualify(text string) string {
	if !f.Names(text) || strings.HasPrefix(text, "/"+PluginName+":") {
		return text
	}
	return "/" + PluginName + ":" + text[1:]
}

// Expand replaces a message that calls a skill or command, as "/review main", by that skill's
// instructions. Other messages stay as they are.
func (f *Folder) Expand(text string) string {
	s, args := f.named(text)
	if s == nil {
		return text
	}
	body := s.Body
	if strings.Contains(body, "$ARGUMENTS") {
		body = strings.ReplaceAll(body, "$ARGUMENTS", args)
	} else if args != "" {
		body += "\n\nARGUMENTS: " + args
	}
	return "The user ran the command /" + s.Name + ". Its instructions:\n\n" + body
}

// Slash splits a message that begins with "/NAME" or "/agent:NAME" into the name and the arguments.
func Slash(text string) (name, args string, ok bool) {
	rest, ok := strings.CutPrefix(text, "/")
	if !ok {
		return "", "", false
	}
	name = rest
	if i := strings.IndexFunc(rest, space); i >= 0 {
		name, args = rest[:i], strings.TrimSpace(rest[i:])
	}
	name = strings.TrimPrefix(name, PluginName+":")
	return name, args, goodName.MatchString(name)
}

// space reports whether c ends the name of a command for the Claude Code CLI.
func space(c rune) bool { return unicode.IsSpace(c) || c == '\ufeff' }
