#pragma once
// Character classes and case, as the Rust library's components see them. They come from utf8proc;
// where the library uses older tables its answers are kept, since models were trained with them.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

// One byte of class bits per character, in two stages.
class CharClasses {
 public:
  enum Bit : std::uint8_t {
    letter = 1,
    number = 2,
    mark = 4,
    space = 8,        // the White_Space property
    upper_like = 16,  // Lu Lt Lm Lo M
    lower_like = 32,  // Ll Lm Lo M
    punctuation = 64,
    symbol = 128,
  };

  static const CharClasses& get();

  std::uint8_t operator[](char32_t c) const { return bits_[pages_[c >> 7] * 128u + (c & 127)]; }
  std::uint8_t ascii(char c) const { return bits_[static_cast<unsigned char>(c)]; }

 private:
  CharClasses();
  std::array<std::uint8_t, 0x110000 / 128> pages_{};
  std::vector<std::uint8_t> bits_;
};

bool is_white_space(char32_t c);
bool is_numeric(char32_t c);          // any N
bool is_letter(char32_t c);           // any L
bool is_word(char32_t c);             // \w of Rust's regex
bool is_punctuation(char32_t c);      // ASCII punctuation or P, of Unicode 8
bool is_combining_mark(char32_t c);   // M, of Unicode 9
bool is_nonspacing_mark(char32_t c);  // Mn, of Unicode 8
bool is_control(char32_t c);  // what BERT removes: C, except for some newer Cf and tab, \n, \r
bool is_chinese(char32_t c);  // BERT's ranges

void append_lowercase(std::string& out, char32_t c);

// Normal forms of valid UTF-8, with the combining classes and decompositions of Unicode 9.
enum class NormalForm : std::uint8_t { nfc, nfd, nfkc, nfkd };
std::string normal_form(std::string_view text, NormalForm form);

}  // namespace quire
