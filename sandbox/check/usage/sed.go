package usage

import "strings"

// Script lists the files and programs that a sed or awk program uses.
type Script struct {
	// Reads and Writes are the names of the files that the script reads and writes.
	Reads, Writes []string
	// Runs is the script's text from where it first runs a program; empty if it runs none.
	Runs string
	// Opens is the script's text from where it opens a file whose name is known only at run
	// time; empty if it opens no such file.
	Opens string
	// Unread says why the script could not be read; empty if it was read.
	Unread string
}

// ReadSed reads a sed script. Implementations differ on whether a delimiter inside of
// brackets ends an expression: if both readings are possible, the effects of both
// count.
func ReadSed(text string) Script {
	plain, brackets := readSed(text, false), readSed(text, true)
	switch {
	case plain.Unread != "":
		return brackets
	case brackets.Unread != "":
		return plain
	}
	plain.Reads = append(plain.Reads, brackets.Reads...)
	plain.Writes = append(plain.Writes, brackets.Writes...)
	if plain.Runs == "" {
		plain.Runs = brackets.Runs
	}
	return plain
}

func readSed(text string, brackets bool) Script {
	s := &sedReader{text: text, brackets: brackets}
	for s.out.Unread == "" && s.out.Runs == "" {
		s.skip(" \t\n;")
		if s.at == len(s.text) {
			break
		}
		s.command()
	}
	if s.depth != 0 && s.out.Unread == "" && s.out.Runs == "" {
		s.fail("an opening brace has no closing one")
	}
	return s.out
}

type sedReader struct {
	text     string
	at       int
	depth    int
	brackets bool
	out      Script
}

func (s *sedReader) fail(why string) { s.out.Unread = why }

func (s *sedReader) peek() byte {
	if s.at < len(s.text) {
		return s.text[s.at]
	}
	return 0
}

func (s *sedReader) skip(set string) {
	for s.at < len(s.text) && strings.IndexByte(set, s.text[s.at]) >= 0 {
		s.at++
	}
}

// address reads one address, if one follows, and reports whether it read one.
func (s *sedReader) address() bool {
	switch c := s.peek(); {
	case c >= '0' && c <= '9', c == '+', c == '~':
		s.skip("0123456789+~")
	case c == '$':
		s.at++
	case c == '/', c == '\\':
		if c == '\\' {
			s.at++
		}
		if s.at == len(s.text) || s.text[s.at] == '\n' || s.text[s.at] == '\\' {
			s.fail("an address has no end")
			return false
		}
		delim := s.text[s.at]
		s.at++
		if _, ok := s.until(delim); !ok {
			return false
		}
		s.skip("IM")
	default:
		return false
	}
	return true
}

// until returns the text up to the next delimiter, and moves behind the delimiter; false if the line has none.
func (s *sedReader) until(delim byte) (string, bool) {
	begin, inside := s.at, false
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == '\\' && !inside:
			s.at++
		case c == '\n':
			s.fail("an expression does not end in its line")
			return "", false
		case s.brackets && !inside && c == '[':
			inside = true
			// A ] at the beginning of a set in brackets is a member of the set.
			if s.at+1 < len(s.text) && s.text[s.at+1] == '^' {
				s.at++
			}
			if s.at+1 < len(s.text) && s.text[s.at+1] == ']' {
				s.at++
			}
		case inside && c == ']':
			inside = false
		case c == delim && !inside:
			text := s.text[begin:s.at]
			s.at++
			return text, true
		}
	}
	s.fail("an expression has no end")
	return "", false
}

// line returns the text up to the end of the current line, without the blanks at its beginning, and moves there.
func (s *sedReader) line() string {
	end := strings.IndexByte(s.text[s.at:], '\n')
	if end < 0 {
		end = len(s.text) - s.at
	}
	text := s.text[s.at : s.at+end]
	s.at += end
	return strings.TrimLeft(text, " \t")
}

func (s *sedReader) command() {
	if s.address() {
		s.skip(" \t")
		if s.peek() == ',' {
			s.at++
			s.skip(" \t")
			if !s.address() {
				s.fail("the second address after a comma is missing")
			}
		}
	}
	s.skip(" \t!")
	if s.out.Unread != "" {
		return
	}
	if s.at == len(s.text) {
		s.fail("a command is missing at the end of the script")
		return
	}
	begin := s.at
	c := s.text[s.at]
	s.at++
	switch c {
	case '#':
		s.line()
	case '{':
		s.depth++
	case '}':
		if s.depth--; s.depth < 0 {
			s.fail("a closing brace has no opening one")
			return
		}
		s.end()
	case '=', 'd', 'D', 'g', 'G', 'h', 'H', 'n', 'N', 'p', 'P', 'x', 'z', 'F':
		s.end()
	case 'l', 'L', 'q', 'Q':
		s.skip(" \t")
		s.skip("0123456789")
		s.end()
	case 'a', 'i', 'c':
		s.appended()
	case ':', 'b', 't', 'T', 'v':
		s.skip(" \t")
		for s.at < len(s.text) && strings.IndexByte(" \t\n;", s.text[s.at]) < 0 {
			s.at++
		}
	case 'r', 'R':
		s.out.Reads = append(s.out.Reads, s.line())
	case 'w', 'W':
		s.out.Writes = append(s.out.Writes, s.line())
	case 'e':
		s.out.Runs = s.text[begin:]
	case 's':
		s.substitute(begin)
	case 'y':
		s.pair()
		s.end()
	default:
		s.fail("the script has a command that is not known")
	}
}

// end moves to the end of a command. It fails unless ; } # or the end of the line or script follows.
func (s *sedReader) end() {
	s.skip(" \t")
	if c := s.peek(); s.at < len(s.text) && c != ';' && c != '\n' && c != '}' && c != '#' && s.out.Unread == "" {
		s.fail("text follows a command that ends there")
	}
}

// appended skips the text of an a, i or c command. The text ends at the first line end without a backslash before it.
func (s *sedReader) appended() {
	for ; s.at < len(s.text); s.at++ {
		switch s.text[s.at] {
		case '\\':
			s.at++
		case '\n':
			return
		}
	}
	s.at = min(s.at, len(s.text))
}

// pair skips both expressions of an s or y command: what is searched for, and the replacement.
func (s *sedReader) pair() bool {
	delim := s.peek()
	if s.at == len(s.text) || delim == '\n' || delim == '\\' {
		s.fail("the expression of an s or y command is missing")
		return false
	}
	s.at++
	if _, ok := s.until(delim); !ok {
		return false
	}
	// Brackets have no special meaning in a replacement.
	was := s.brackets
	s.brackets = false
	_, ok := s.until(delim)
	s.brackets = was
	return ok
}

func (s *sedReader) substitute(begin int) {
	if !s.pair() {
		return
	}
	for s.at < len(s.text) {
		switch c := s.text[s.at]; {
		case strings.IndexByte("gpiImM0123456789", c) >= 0:
			s.at++
		case c == 'e':
			s.out.Runs = s.text[begin:]
			return
		case c == 'w':
			s.at++
			s.out.Writes = append(s.out.Writes, s.line())
			return
		default:
			s.end()
			return
		}
	}
}
