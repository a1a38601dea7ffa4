// The parts of judge_machine(), each for rows of one kind.
#pragma once

#include <string>

#include "harness/device/doctor.h"

namespace mkbench::doctor {

inline constexpr char kRepair[] =
    "scripts/setup.sh repairs the installation: it fetches what is missing and builds anew";

// What the table of known errors says of a message; `otherwise` where it does not know it, or would
// send to set-up too.
std::string advice_for(const std::string& message, const std::string& otherwise);

// A problem of the card: with --device cpu no more than a note.
void add_of_card(const DoctorInputs& inputs, Items& items, const std::string& topic,
                 const std::string& text, const std::string& what_to_do);

// doctor_card.cpp: driver, runtime and GPUs; on a machine on which the host of the CUDA engines did
// not start, what is known without it.
void judge_cards(const DoctorInputs& inputs, DoctorReport& report, Items& items);
// doctor_code.cpp: our code, libtorch, bf16 and what both compute on the card.
void judge_code(const DoctorInputs& inputs, const DoctorReport& report, Items& items);
// doctor_host.cpp
void judge_toolkit(const DoctorReport& report, Items& items);
void judge_memory(const DoctorInputs& inputs, const DoctorReport& report, Items& items);
void judge_surroundings(const DoctorReport& report, Items& items);
void judge_container(const DoctorReport& report, Items& items);
// doctor_wsl.cpp: WSL, whose driver programs find there, and what Windows keeps from them.
void judge_wsl(const DoctorInputs& inputs, const DoctorReport& report, Items& items);

}  // namespace mkbench::doctor
