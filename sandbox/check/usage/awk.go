package usage

import "strings"

// ReadAwk reads an awk program far enough to find the programs it runs and the files it
// opens. A slash begins a regular expression or divides: if the text before the slash does
// not decide which, both are tried.
func ReadAwk(text string) Script {
	a := &awkReader{text: text, operand: false}
	for a.out.Unread == "" && a.out.Runs == "" && a.next() {
	}
	return a.out
}

type awkReader struct {
	text string
	at   int
	out  Script
	// operand is true if the last token ended an operand, so that a slash after it divides. postfix is
	// true if the last token was a ++ or -- after an operand: a slash after it may divide or begin a regular expression.
	operand, postfix bool
	// controls says for each open parenthesis whether it belongs to an if, while, for or switch.
	controls []bool
	// control is true if the last token was if, while, for or switch.
	control bool
	// printing is the number of parentheses that were open at the current print statement; -1
	// outside of a print statement.
	printing int
	begun    bool
	// forks counts the slashes that were read both as a division and as the beginning of a regular expression.
	forks int
}

func (a *awkReader) fail(why string) { a.out.Unread = why }

func (a *awkReader) rest(s string) bool { return strings.HasPrefix(a.text[a.at:], s) }

// next reads one token of the awk program; it returns false at the end of the program or after an invalid string.
func (a *awkReader) next() bool {
	if !a.begun {
		a.begun, a.printing = true, -1
	}
	if a.at >= len(a.text) {
		return false
	}
	c := a.text[a.at]
	switch {
	case c == ' ' || c == '\t' || a.rest("\\\n"):
		a.at++
		if c == '\\' {
			a.at++
		}
		return true
	case c == '#':
		for a.at < len(a.text) && a.text[a.at] != '\n' {
			a.at++
		}
		return true
	case c == '"':
		_, ok := a.quoted()
		a.set(true)
		return ok
	case c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
		a.word()
	case c >= '0' && c <= '9':
		for a.at < len(a.text) && (a.text[a.at] == '.' || a.text[a.at] >= '0' && a.text[a.at] <= '9') {
			a.at++
		}
		a.set(true)
	case c == '/':
		a.slash()
	default:
		a.mark(c)
	}
	return true
}

func (a *awkReader) set(operand bool) { a.operand, a.postfix, a.control = operand, false, false }

// quoted reads a string and returns its text as written; false if the string does not end in its line.
func (a *awkReader) quoted() (string, bool) {
	begin := a.at + 1
	for a.at++; a.at < len(a.text); a.at++ {
		switch a.text[a.at] {
		case '\\':
			a.at++
		case '\n':
			a.fail("a string does not end in its line")
			return "", false
		case '"':
			s := a.text[begin:a.at]
			a.at++
			return s, true
		}
	}
	a.fail("a string has no end")
	return "", false
}

func (a *awkReader) word() {
	begin := a.at
	for a.at < len(a.text) && (a.text[a.at] == '_' || a.text[a.at] >= '0' && a.text[a.at] <= '9' || a.text[a.at]|0x20 >= 'a' && a.text[a.at]|0x20 <= 'z') {
		a.at++
	}
	switch w := a.text[begin:a.at]; w {
	case "system":
		a.out.Runs = a.text[begin:]
	case "getline":
		a.getline(begin)
	case "print", "printf":
		a.set(false)
		a.printing = len(a.controls)
	case "if", "while", "for", "switch":
		a.set(false)
		a.control = true
	case "return", "case", "else", "do", "in", "exit", "delete", "function", "func":
		a.set(false)
	default:
		a.set(true)
	}
}

// getline reads what follows the word getline in an awk program: `<` and a file name, if getline
// reads from a file. If it reads from a program, a pipe precedes the word, which mark finds.
func (a *awkReader) getline(begin int) {
	rest := strings.TrimLeft(a.text[a.at:], " \t")
	lvalue := strings.TrimLeft(rest, "$_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
	switch after := strings.TrimLeft(lvalue, " \t"); {
	case strings.HasPrefix(after, "<"):
		after = strings.TrimLeft(after[1:], " \t")
		if !strings.HasPrefix(after, `"`) {
			a.out.Opens = a.text[begin:]
			a.set(true)
			return
		}
		a.at = len(a.text) - len(after)
		a.file(&a.out.Reads)
	case strings.HasPrefix(after, "[") || strings.HasPrefix(after, "(") || strings.HasPrefix(after, "/"):
		a.out.Opens = a.text[begin:]
		a.set(true)
	default:
		a.set(true)
	}
}

// file reads the expression that names a file. The name is known only if that is one string without backslashes.
func (a *awkReader) file(to *[]string) {
	begin := a.at
	name, ok := a.quoted()
	a.set(true)
	if !ok {
		return
	}
	rest := strings.TrimLeft(a.text[a.at:], " \t")
	if (rest == "" || strings.IndexByte(";})\n>", rest[0]) >= 0) && !strings.Contains(name, `\`) {
		*to = append(*to, name)
		return
	}
	a.out.Opens = a.text[begin:]
}

func (a *awkReader) slash() {
	switch {
	case a.operand || a.postfix:
		if a.postfix {
			a.otherwise()
		}
		a.at++
		a.set(false)
	default:
		a.expression()
	}
}

// otherwise reads the rest of the program a second time, as if the slash after ++ or -- began a
// regular expression. It adds the commands and files found to the result, unless that reading fails.
func (a *awkReader) otherwise() {
	if a.forks++; a.forks > 3 {
		a.fail("too many slashes may either divide or begin a regular expression")
		return
	}
	other := *a
	other.controls = append([]bool(nil), a.controls...)
	other.operand, other.postfix = false, false
	other.expression()
	for other.out.Unread == "" && other.out.Runs == "" && other.next() {
	}
	if other.out.Unread == "" {
		a.out = other.out
	}
}

// expression skips a regular expression between two slashes.
func (a *awkReader) expression() {
	inside := false
	for a.at++; a.at < len(a.text); a.at++ {
		switch c := a.text[a.at]; {
		case c == '\\':
			a.at++
		case c == '\n':
			a.fail("a regular expression does not end in its line")
			return
		case c == '[':
			inside = true
		case c == ']':
			inside = false
		case c == '/' && inside:
			a.fail("a regular expression has a slash in brackets, which versions of awk read differently")
			return
		case c == '/':
			a.at++
			a.set(true)
			return
		}
	}
	a.fail("a regular expression has no end")
}

// mark reads one punctuation character or operator of the awk program.
func (a *awkReader) mark(c byte) {
	begin := a.at
	switch {
	case a.rest("||"), a.rest("&&"), a.rest(">="), a.rest("<="), a.rest("=="), a.rest("!="), a.rest("!~"):
		a.at += 2
		a.set(false)
	case a.rest("++"), a.rest("--"):
		a.at += 2
		operand := a.operand
		a.set(false)
		a.postfix = operand
	case c == '|':
		a.out.Runs = a.text[begin:]
	case c == '@':
		a.out.Runs = a.text[begin:]
	case c == '>':
		a.written()
	case c == '(':
		a.at++
		a.controls = append(a.controls, a.control)
		a.set(false)
	case c == ')':
		a.closed()
	case c == ']':
		a.at++
		a.set(true)
	case c == ';' || c == '\n' || c == '}' || c == '{':
		a.at++
		a.set(false)
		a.printing = -1
	case strings.IndexByte("[,$!~<=+-*%^?:&\r", c) >= 0:
		a.at++
		a.set(false)
	default:
		a.fail("the program has a character that is not part of the awk language")
	}
}

func (a *awkReader) closed() {
	a.at++
	if len(a.controls) == 0 {
		a.fail("a closing parenthesis has no opening one")
		return
	}
	control := a.controls[len(a.controls)-1]
	a.controls = a.controls[:len(a.controls)-1]
	a.set(!control)
}

// written reads `>` or `>>`. In a print statement the file that print writes follows; elsewhere `>` compares.
func (a *awkReader) written() {
	begin := a.at
	a.at++
	if a.rest(">") {
		a.at++
	}
	a.set(false)
	if a.printing != len(a.controls) {
		return
	}
	for a.rest(" ") || a.rest("\t") {
		a.at++
	}
	if a.rest(`"`) {
		a.file(&a.out.Writes)
		return
	}
	a.out.Opens = a.text[begin:]
}
