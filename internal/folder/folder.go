package folder

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// Limits on what a folder may bring. Files beyond a limit are left out.
const (
	// maxText is the largest file that becomes instructions, maxTexts the size of all of them, in bytes.
	maxText, maxTexts = 128 << 10, 4 << 20
	// maxSettings is the largest settings file that is read, in bytes.
	maxSettings = 1 << 20
	// maxEach is how many skills and commands together, how many sub-agents, and how many styles a folder may have.
	maxEach = 200
	// maxNotices is how many notices a Folder has at most.
	maxNotices = 100
)

// Folder is what an agent version brings under .claude. The zero value brings nothing. It is
// shared, so it must not be changed.
type Folder struct {
	// Skills are the skills and commands, by name.
	Skills []Skill
	// Agents are the sub-agents, by name.
	Agents []Agent
	Styles []Style
	// Style is the name of the output style that the version's settings choose: one of Styles, or
	// a built-in one of Claude Code; empty for none.
	Style string
	// Plugin are the files of a plugin directory for Claude Code with the skills and styles.
	Plugin []Staged
	// Notices report which files or keys were left out, and why.
	Notices []string
	// Sums are the SHA-256 sums, in hex, of the version's instruction files (CLAUDE.md, AGENTS.md), by path: a file of a
	// workspace with the same sum is not given to the agent again.
	Sums map[string]string
}

// Skill is a skill or a command.
type Skill struct {
	Name, Description string
	// File is the path of its file in the folder.
	File string
	Body string
	// Command is true if it came from .claude/commands. Hidden hides it from the model, Internal
	// from the user.
	Command, Hidden, Internal bool
}

// Agent is a sub-agent.
type Agent struct {
	Name, Description, Prompt string
	// Tools are the names of the only tools that the sub-agent may use, as its file has them; nil means all tools.
	Tools []string
	// Without are the names of tools that the sub-agent must not use.
	Without []string
}

// Style is an output style.
type Style struct{ Name, Description, Body string }

// Staged is a file of the plugin directory: either Content, or a copy of the version's file From.
type Staged struct {
	Path    string
	Content []byte
	From    *holdfast.AgentFile
}

// Skill returns the skill with that name, or nil.
func (f *Folder) Skill(name string) *Skill {
	if f == nil {
		return nil
	}
	i := slices.IndexFunc(f.Skills, func(s Skill) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &f.Skills[i]
}

// Chosen returns the output style of the folder that its settings choose, or nil.
func (f *Folder) Chosen() *Style {
	if f == nil {
		return nil
	}
	i := slices.IndexFunc(f.Styles, func(s Style) bool { return s.Name == f.Style })
	if i < 0 {
		return nil
	}
	return &f.Styles[i]
}

const (
	skillsDir   = ".claude/skills/"
	commandsDir = ".claude/commands/"
	agentsDir   = ".claude/agents/"
	stylesDir   = ".claude/output-styles/"
	skillFile   = "SKILL.md"
	settingsAt  = ".claude/settings.json"
)

// PluginName is the name of the plugin directory. The CLI calls a skill by its full name PluginName:NAME.
const PluginName = "agent"

// builtinStyles are the output styles that are built into Claude Code.
var builtinStyles = []string{"default", "Proactive", "Concise", "Explanatory", "Learning"}

// goodName matches the allowed names of skills, commands and sub-agents.
var goodName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// Read reads the folder of a version from its files, which are sorted by path; keys parses
// frontmatter. It returns only errors of read; an invalid file is left out instead.
func Read(list []holdfast.AgentFile, read func(holdfast.AgentFile) ([]byte, error), keys Keys) (*Folder, error) {
	r := &reader{out: &Folder{Sums: map[string]string{}}, read: read, keys: keys, dirs: map[string]bool{}}
	for _, kind := range []func(holdfast.AgentFile) error{r.skill, r.command, r.agent, r.style, r.rest} {
		for _, f := range list {
			if err := kind(f); err != nil {
				return nil, err
			}
		}
	}
	for i := range list {
		r.beside(&list[i])
	}
	slices.SortFunc(r.out.Skills, func(a, b Skill) int { return strings.Compare(a.Name, b.Name) })
	r.choose()
	if len(r.out.Skills)+len(r.out.Styles) > 0 {
		manifest := fmt.Sprintf("{\"name\":%q,\"version\":\"1.0.0\",\"description\":\"What this agent brings.\"}\n", PluginName)
		r.out.Plugin = append(r.out.Plugin, Staged{Path: ".claude-plugin/plugin.json", Content: []byte(manifest)})
	}
	slices.SortFunc(r.out.Plugin, func(a, b Staged) int { return strings.Compare(a.Path, b.Path) })
	return r.out, nil
}

// reader is the state of one Read.
type reader struct {
	out   *Folder
	read  func(holdfast.AgentFile) ([]byte, error)
	keys  Keys
	bytes int
	// dirs are the directories of the skills that are used.
	dirs map[string]bool
	// chosen is the output style that the settings choose.
	chosen string
}

func (r *reader) notice(file, format string, args ...any) {
	if len(r.out.Notices) < maxNotices {
		r.out.Notices = append(r.out.Notices, file+": "+fmt.Sprintf(format, args...))
	}
}

// text reads a file whose text becomes instructions, such as a skill. It returns nil if the file is left out. have is
// how many files of this kind there are already.
func (r *reader) text(f holdfast.AgentFile, have int) (*front, error) {
	switch {
	case f.Size > maxText:
		r.notice(f.Path, "is left out: it is longer than %d bytes", maxText)
		return nil, nil
	case have >= maxEach || r.bytes+int(f.Size) > maxTexts:
		r.notice(f.Path, "is left out: the folder has too many files of this kind, or too much text")
		return nil, nil
	}
	data, err := r.read(f)
	if err != nil {
		return nil, err
	}
	r.bytes += len(data)
	m, err := parseFront(data, r.keys)
	if err != nil {
		r.notice(f.Path, "is left out: %s", err)
		return nil, nil
	}
	return m, nil
}

// dropped adds notices about the keys, and the marks of shell commands, that are not passed on.
func (r *reader) dropped(file string, m *front) {
	if len(m.dropped) > 0 {
		slices.Sort(m.dropped)
		r.notice(file, "%s: not passed on, the server decides about that", strings.Join(m.dropped, ", "))
	}
	if m.shell {
		r.notice(file, "!`command`: not run, and the text is passed on without the mark")
	}
}

func (r *reader) mayBe(file, name string) bool {
	if !goodName.MatchString(name) {
		r.notice(file, "is left out: %s is not a name of letters, digits, '.', '_' and '-'", holdfast.Quote(name))
		return false
	}
	return true
}

// skill reads a skill, .claude/skills/NAME/SKILL.md.
func (r *reader) skill(f holdfast.AgentFile) error {
	rest, ok := strings.CutPrefix(f.Path, skillsDir)
	if !ok {
		return nil
	}
	name, file, _ := strings.Cut(rest, "/")
	if file != skillFile {
		if strings.EqualFold(path.Base(rest), skillFile) {
			r.notice(f.Path, "is left out: the file of a skill must be .claude/skills/NAME/SKILL.md")
		}
		return nil
	}
	if !r.mayBe(f.Path, name) {
		return nil
	}
	return r.add(f, name, false)
}

// command reads a command, .claude/commands/NAME.md. The file may lie in further directories, which are not part of its
// name.
func (r *reader) command(f holdfast.AgentFile) error {
	rest, ok := strings.CutPrefix(f.Path, commandsDir)
	if !ok || path.Ext(rest) != ".md" {
		return nil
	}
	name := strings.TrimSuffix(path.Base(rest), ".md")
	if !r.mayBe(f.Path, name) {
		return nil
	}
	if s := r.out.Skill(name); s != nil {
		r.notice(f.Path, "is left out: %s has the same name", s.File)
		return nil
	}
	return r.add(f, name, true)
}

func (r *reader) add(f holdfast.AgentFile, name string, command bool) error {
	m, err := r.text(f, len(r.out.Skills))
	if m == nil {
		return err
	}
	s := Skill{Name: name, File: f.Path, Body: m.body, Command: command}
	s.Description = m.text("description")
	if s.Description == "" {
		s.Description = firstLine(m.body)
	}
	if more := m.text("when_to_use"); more != "" {
		s.Description = label(strings.TrimSpace(s.Description + " " + more))
	}
	hint := m.text("argument-hint")
	s.Hidden = m.yes("disable-model-invocation", false)
	s.Internal = !m.yes("user-invocable", true)
	m.silent("name", "license", "version", "metadata")
	if m.err != nil {
		r.notice(f.Path, "is left out: %s", m.err)
		return nil
	}
	r.dropped(f.Path, m.finish())
	r.out.Skills = append(r.out.Skills, s)
	r.out.Sums[f.Path] = f.SHA256
	if !command {
		r.dirs[name] = true
	}
	keys := []string{"name", name, "description", s.Description, "argument-hint", hint}
	if s.Hidden {
		keys = append(keys, "disable-model-invocation", "true")
	}
	if s.Internal {
		keys = append(keys, "user-invocable", "false")
	}
	r.stage("skills/"+name+"/"+skillFile, keys, m.body)
	return nil
}

// stage adds a text file to the plugin directory.
func (r *reader) stage(at string, keys []string, body string) {
	r.out.Plugin = append(r.out.Plugin, Staged{Path: at, Content: compose(keys, body)})
}

// beside copies one file of a skill's directory into the plugin directory. It skips SKILL.md, and it leaves out a file
// with a path below that directory in which the name of the file or of a directory begins with a dot.
func (r *reader) beside(f *holdfast.AgentFile) {
	rest, ok := strings.CutPrefix(f.Path, skillsDir)
	name, file, _ := strings.Cut(rest, "/")
	if !ok || !r.dirs[name] || strings.EqualFold(path.Base(file), skillFile) {
		return
	}
	if strings.HasPrefix(file, ".") || strings.Contains(file, "/.") {
		r.notice(f.Path, "is left out: its name begins with a dot")
		return
	}
	r.out.Plugin = append(r.out.Plugin, Staged{Path: "skills/" + rest, From: f})
}

// agent reads a sub-agent, .claude/agents/NAME.md.
func (r *reader) agent(f holdfast.AgentFile) error {
	rest, ok := strings.CutPrefix(f.Path, agentsDir)
	if !ok || path.Ext(rest) != ".md" {
		return nil
	}
	m, err := r.text(f, len(r.out.Agents))
	if m == nil {
		return err
	}
	a := Agent{Name: m.text("name"), Description: m.text("description"), Prompt: m.body}
	a.Tools, a.Without = m.list("tools"), m.list("disallowedTools")
	m.silent("color")
	switch {
	case m.err != nil:
		r.notice(f.Path, "is left out: %s", m.err)
		return nil
	case a.Name == "" || a.Description == "":
		r.notice(f.Path, "is left out: a sub-agent needs a name and a description")
		return nil
	case !r.mayBe(f.Path, a.Name):
		return nil
	case slices.ContainsFunc(r.out.Agents, func(b Agent) bool { return b.Name == a.Name }):
		r.notice(f.Path, "is left out: there is a sub-agent %s already", a.Name)
		return nil
	}
	if m.text("model") != "inherit" {
		m.unread("model")
	}
	r.dropped(f.Path, m.finish())
	r.out.Agents = append(r.out.Agents, a)
	return nil
}

// style reads an output style, .claude/output-styles/NAME.md.
func (r *reader) style(f holdfast.AgentFile) error {
	rest, ok := strings.CutPrefix(f.Path, stylesDir)
	if !ok || path.Ext(rest) != ".md" || strings.Contains(rest, "/") {
		return nil
	}
	m, err := r.text(f, len(r.out.Styles))
	if m == nil {
		return err
	}
	s := Style{Name: m.text("name"), Description: m.text("description"), Body: m.body}
	keep := m.yes("keep-coding-instructions", false)
	if s.Name == "" {
		s.Name = strings.TrimSuffix(rest, ".md")
	}
	if m.err != nil {
		r.notice(f.Path, "is left out: %s", m.err)
		return nil
	}
	if !r.mayBe(f.Path, s.Name) {
		return nil
	}
	r.dropped(f.Path, m.finish())
	r.out.Styles = append(r.out.Styles, s)
	keys := []string{"name", s.Name, "description", s.Description}
	if keep {
		keys = append(keys, "keep-coding-instructions", "true")
	}
	r.stage("output-styles/"+s.Name+".md", keys, m.body)
	return nil
}

// rest handles the files that belong to no skill, command, sub-agent or style: it stores the sums of the instruction files,
// and the output style that the settings choose. Whether the settings are valid is checked elsewhere.
func (r *reader) rest(f holdfast.AgentFile) error {
	switch f.Path {
	case "CLAUDE.md", "AGENTS.md", ".claude/CLAUDE.md":
		r.out.Sums[f.Path] = f.SHA256
	case settingsAt:
		if f.Size > maxSettings {
			return nil
		}
		data, err := r.read(f)
		if err != nil {
			return err
		}
		var set struct {
			Style any `json:"outputStyle"`
		}
		if json.Unmarshal(data, &set) == nil {
			r.chosen, _ = set.Style.(string)
		}
	}
	return nil
}

// choose stores the output style that the settings name in the Folder, or adds a notice if there is no such style.
func (r *reader) choose() {
	r.out.Style = r.chosen
	if r.chosen != "" && r.out.Chosen() == nil && !slices.Contains(builtinStyles, r.chosen) {
		r.notice(settingsAt, "outputStyle: there is no output style %s", holdfast.Quote(r.chosen))
		r.out.Style = ""
	}
}
